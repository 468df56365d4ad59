package merge

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/deltalog"
	"tidemark/internal/parquetfile"
	"tidemark/internal/partition"
	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
	"tidemark/internal/table"
)

// propertyWidening is the table property that Delta asks for before types may be widened.
const propertyWidening = "delta.enableTypeWidening"

// evolution is a table's schema once it has taken in the generations of a commit.
type evolution struct {
	schema  *schema.Schema
	changed bool
	// known are the fingerprints of generation schemas that the schema holds: most generations are never opened
	// for it.
	known map[string]bool
}

// evolve brings the table's schema up to the generations of a plan, in their order. A generation whose schema cannot
// be taken in stops its shard; the schema is then that of what remains.
func (x *execution) evolve(ctx context.Context, plan []backlog) (evolution, stops, error) {
	e := evolution{schema: x.table.Schema, known: map[string]bool{}}
	e.knows(e.schema.Arrow(), x.table.Mode)
	var stopped stops
	for _, b := range plan {
		for _, g := range b.generations {
			if g.Rows == 0 || e.known[g.Schema] {
				continue
			}
			err := x.takeIn(ctx, &e, g.Path, g.Schema)
			if err == nil {
				continue
			}
			if err = x.failed(b.shard, g.Number, err); !stopped.add(err) {
				return e, nil, err
			}
			break
		}
	}
	return e, stopped, nil
}

func (e *evolution) knows(s *arrow.Schema, mode table.Mode) {
	e.known[schema.Fingerprint(s)] = true
	if mode == table.Upsert {
		operations := arrow.Field{Name: schema.OpColumn, Type: arrow.BinaryTypes.String, Nullable: true}
		e.known[schema.Fingerprint(arrow.NewSchema(append(slices.Clone(s.Fields()), operations), nil))] = true
	}
}

func (x *execution) takeIn(ctx context.Context, e *evolution, path, fingerprint string) error {
	r, err := parquetfile.OpenReader(ctx, x.store, x.key(path), parquetfile.ReaderOptions{Mem: x.Mem})
	if err != nil {
		return err
	}
	defer r.Close()
	columns := r.Schema()
	if x.table.Mode == table.Upsert {
		columns = withoutOperations(columns)
	}
	incoming, err := schema.FromArrow(columns)
	if err != nil {
		return err
	}
	if _, ok := incoming.Field(schema.OpColumn); ok {
		return &schema.ClashError{
			Table: e.schema, Incoming: incoming, Column: schema.OpColumn,
			Reason: "it marks deletes, which only upsert tables have",
		}
	}
	merged, changed, err := schema.Evolve(e.schema, incoming)
	if err != nil {
		return err
	}
	if err := x.keepsOrder(e.schema, merged, incoming); err != nil {
		return err
	}
	if err := partition.Keeps(e.schema, merged, incoming, x.table.Snapshot.Metadata.PartitionColumns); err != nil {
		return err
	}
	if fingerprint != "" {
		e.known[fingerprint] = true
	}
	if changed {
		e.schema, e.changed = merged, true
		e.knows(merged.Arrow(), x.table.Mode)
	}
	return nil
}

func withoutOperations(s *arrow.Schema) *arrow.Schema {
	var fields []arrow.Field
	for _, f := range s.Fields() {
		if f.Name != schema.OpColumn {
			fields = append(fields, f)
		}
	}
	return arrow.NewSchema(fields, nil)
}

// keepsOrder refuses a widening of a key or sequence column that would give its values other bytes to be ordered by:
// base files are sorted, and keys hashed to buckets, by the bytes they had.
func (x *execution) keepsOrder(old, merged, incoming *schema.Schema) error {
	before, after := old.Arrow(), merged.Arrow()
	for _, name := range append(slices.Clone(x.table.Key), x.table.Sequence) {
		was, ok := before.FieldsByName(name)
		if !ok {
			continue
		}
		is, _ := after.FieldsByName(name)
		if !rowkey.SameBytes(was[0].Type, is[0].Type) {
			return &schema.ClashError{
				Table: old, Incoming: incoming, Column: name,
				Reason: fmt.Sprintf("widening it from %s to %s would change the order of keys; key and sequence columns keep their kind", was[0].Type, is[0].Type),
			}
		}
	}
	return nil
}

// change puts the evolved schema into a commit: new metadata, and a protocol that allows for it.
func (e evolution) change(in *deltalog.Intent) {
	if !e.changed {
		return
	}
	metadata, protocol := in.Read.Metadata, in.Read.Protocol
	metadata.SchemaString = e.schema.String()
	if e.schema.HasTimestampNTZ() && !protocol.Has(deltalog.FeatureTimestampNTZ) {
		protocol = protocol.With(deltalog.FeatureTimestampNTZ)
	}
	if e.schema.HasTypeChanges() {
		if !protocol.Has(deltalog.FeatureTypeWidening) {
			protocol = protocol.With(deltalog.FeatureTypeWidening)
		}
		metadata.Configuration = maps.Clone(metadata.Configuration)
		metadata.Configuration[propertyWidening] = "true"
	}
	in.Metadata = &metadata
	if !protocol.Equal(in.Read.Protocol) {
		in.Protocol = &protocol
	}
}

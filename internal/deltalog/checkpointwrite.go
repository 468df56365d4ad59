package deltalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
)

// checkpointBatch is how many actions are encoded at once.
const checkpointBatch = 8 << 10

var (
	textMap  = arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.String)
	textList = arrow.ListOf(arrow.BinaryTypes.String)
)

func fields(of ...any) arrow.DataType {
	var out []arrow.Field
	for i := 0; i < len(of); i += 2 {
		out = append(out, arrow.Field{Name: of[i].(string), Type: of[i+1].(arrow.DataType), Nullable: true})
	}
	return arrow.StructOf(out...)
}

// The columns of a checkpoint, in the order in which checkpointBuilder fills them.
var (
	protocolType = fields("minReaderVersion", arrow.PrimitiveTypes.Int32, "minWriterVersion", arrow.PrimitiveTypes.Int32,
		"readerFeatures", textList, "writerFeatures", textList)
	metadataType = fields("id", arrow.BinaryTypes.String, "name", arrow.BinaryTypes.String, "description", arrow.BinaryTypes.String,
		"format", fields("provider", arrow.BinaryTypes.String, "options", textMap),
		"schemaString", arrow.BinaryTypes.String, "partitionColumns", textList, "createdTime", arrow.PrimitiveTypes.Int64,
		"configuration", textMap)
	txnType = fields("appId", arrow.BinaryTypes.String, "version", arrow.PrimitiveTypes.Int64, "lastUpdated", arrow.PrimitiveTypes.Int64)
	addType = fields("path", arrow.BinaryTypes.String, "partitionValues", textMap, "size", arrow.PrimitiveTypes.Int64,
		"modificationTime", arrow.PrimitiveTypes.Int64, "dataChange", arrow.FixedWidthTypes.Boolean,
		"stats", arrow.BinaryTypes.String, "tags", textMap)
	removeType = fields("path", arrow.BinaryTypes.String, "deletionTimestamp", arrow.PrimitiveTypes.Int64,
		"dataChange", arrow.FixedWidthTypes.Boolean, "extendedFileMetadata", arrow.FixedWidthTypes.Boolean,
		"partitionValues", textMap, "size", arrow.PrimitiveTypes.Int64)

	checkpointSchema = arrow.NewSchema([]arrow.Field{
		{Name: "protocol", Type: protocolType, Nullable: true},
		{Name: "metaData", Type: metadataType, Nullable: true},
		{Name: "txn", Type: txnType, Nullable: true},
		{Name: "add", Type: addType, Nullable: true},
		{Name: "remove", Type: removeType, Nullable: true},
	}, nil)
)

// Checkpoint writes the classic checkpoint of a snapshot and makes _last_checkpoint name it. Statistics are kept;
// tombstones are, until their retention has passed. A checkpoint that is already there is left alone.
func (l *Log) Checkpoint(ctx context.Context, s *Snapshot) error {
	if err := s.Writable(); err != nil {
		return err
	}
	if err := s.Foreign(); err != nil {
		return err // the checkpoint would hide the evidence
	}
	s = s.withoutExpired(l.clock.Now())
	key := l.key(checkpointName(s.Version))
	hint := lastCheckpointJSON{
		Version: s.Version, NumOfAddFiles: int64(s.files.len),
		Size: int64(2 + s.files.len + s.tombstones.len + s.txns.len),
	}
	info, err := l.store.Head(ctx, key)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		if info, err = l.writeCheckpoint(ctx, key, s); err != nil {
			return fmt.Errorf("table %s: writing the checkpoint of version %d: %w", l.table, s.Version, err)
		}
	case err != nil:
		return fmt.Errorf("table %s: looking for the checkpoint of version %d: %w", l.table, s.Version, err)
	}
	hint.SizeInBytes = info.Size
	return l.pointAt(ctx, hint)
}

func (l *Log) writeCheckpoint(ctx context.Context, key string, s *Snapshot) (objstore.Info, error) {
	up, err := l.store.Create(ctx, key)
	if err != nil {
		return objstore.Info{}, err
	}
	if err := encodeCheckpoint(up, s); err != nil {
		return objstore.Info{}, errors.Join(err, up.Abort(ctx))
	}
	info, err := up.Complete(ctx)
	if errors.Is(err, objstore.ErrExists) {
		return l.store.Head(ctx, key) // another wrote the same version meanwhile, and so the same content
	}
	if err != nil {
		return info, errors.Join(err, up.Abort(ctx))
	}
	return info, nil
}

func encodeCheckpoint(sink io.Writer, s *Snapshot) error {
	w, err := parquetfile.NewWriter(sink, checkpointSchema, parquetfile.WriterOptions{IndexedColumns: parquetfile.NoColumns})
	if err != nil {
		return err
	}
	defer w.Abort()
	b := newCheckpointBuilder()
	defer b.Release()
	err = b.all(s, func(rec arrow.Record) error {
		defer rec.Release()
		return w.Write(rec)
	})
	if err != nil {
		return err
	}
	_, err = w.Close()
	return err
}

// checkpointBuilder turns actions into rows: one of the five columns is set in each.
type checkpointBuilder struct {
	*array.RecordBuilder
	rows  int
	flush func(arrow.Record) error
}

func newCheckpointBuilder() *checkpointBuilder {
	return &checkpointBuilder{RecordBuilder: array.NewRecordBuilder(memory.DefaultAllocator, checkpointSchema)}
}

func (b *checkpointBuilder) all(s *Snapshot, flush func(arrow.Record) error) error {
	b.flush = flush
	if err := b.action(0, s.Protocol.MinReaderVersion, s.Protocol.MinWriterVersion, s.Protocol.ReaderFeatures, s.Protocol.WriterFeatures); err != nil {
		return err
	}
	m := s.Metadata
	if err := b.action(1, m.ID, optional(m.Name), optional(m.Description), []any{m.Format.Provider, m.Format.Options},
		m.SchemaString, m.PartitionColumns, optional(m.CreatedTime), m.Configuration); err != nil {
		return err
	}
	for t := range s.Txns() {
		if err := b.action(2, t.AppID, t.Version, optional(t.LastUpdated)); err != nil {
			return err
		}
	}
	for a := range s.Files() {
		e := encodeAdd(a)
		var tags any
		if len(e.Tags) > 0 {
			tags = e.Tags
		}
		// In a checkpoint nothing is a change any more.
		if err := b.action(3, e.Path, partitionJSON(e.PartitionValues), e.Size, e.ModificationTime, false, optional(e.Stats), tags); err != nil {
			return err
		}
	}
	for r := range s.Tombstones() {
		e := encodeRemove(r)
		if err := b.action(4, e.Path, e.DeletionTimestamp, false, true, partitionJSON(e.PartitionValues), e.Size); err != nil {
			return err
		}
	}
	if b.rows == 0 {
		return nil
	}
	return b.cut()
}

// optional makes the zero value a null.
func optional[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

func (b *checkpointBuilder) action(column int, values ...any) error {
	for i, f := range b.Fields() {
		if i == column {
			appendValue(f, values)
		} else {
			f.AppendNull()
		}
	}
	if b.rows++; b.rows == checkpointBatch {
		return b.cut()
	}
	return nil
}

func (b *checkpointBuilder) cut() error {
	b.rows = 0
	return b.flush(b.NewRecord())
}

// appendValue appends a value of the form that the column has; the forms are those of the types above.
func appendValue(to array.Builder, v any) {
	switch to := to.(type) {
	case *array.StructBuilder:
		to.Append(true)
		for i, inner := range v.([]any) {
			appendValue(to.FieldBuilder(i), inner)
		}
	case *array.MapBuilder:
		m, ok := v.(map[string]string)
		partition, isPartition := v.(partitionJSON)
		if isPartition {
			m, ok = partition, true
		}
		if !ok {
			to.AppendNull()
			return
		}
		to.Append(true)
		for _, k := range slices.Sorted(maps.Keys(m)) {
			to.KeyBuilder().(*array.StringBuilder).Append(k)
			if text := m[k]; isPartition && text == "" {
				to.ItemBuilder().AppendNull()
			} else {
				to.ItemBuilder().(*array.StringBuilder).Append(text)
			}
		}
	case *array.ListBuilder:
		list := v.([]string)
		if list == nil {
			to.AppendNull()
			return
		}
		to.Append(true)
		for _, s := range list {
			to.ValueBuilder().(*array.StringBuilder).Append(s)
		}
	default:
		appendScalar(to, v)
	}
}

func appendScalar(to array.Builder, v any) {
	if v == nil {
		to.AppendNull()
		return
	}
	switch to := to.(type) {
	case *array.StringBuilder:
		to.Append(v.(string))
	case *array.Int64Builder:
		to.Append(v.(int64))
	case *array.Int32Builder:
		to.Append(v.(int32))
	case *array.BooleanBuilder:
		to.Append(v.(bool))
	}
}

package deltalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
)

// checkpointRows is how many actions are decoded at once.
const checkpointRows = 8 << 10

var errSidecars = errors.New("the checkpoint refers to sidecar files")

// readCheckpoint reads one complete checkpoint, batch by batch. What is wrong with its bytes is a *CheckpointError.
func (l *Log) readCheckpoint(ctx context.Context, cp checkpointFiles) (*Snapshot, error) {
	c := &content{}
	for _, part := range cp.parts {
		err := c.readPart(ctx, l.store, part)
		var stored *objstore.Error
		switch {
		case err == nil:
		case errors.As(err, &stored), ctx.Err() != nil:
			return nil, fmt.Errorf("table %s: reading the checkpoint of version %d: %w", l.table, cp.version, err)
		case errors.Is(err, errDeletionVector):
			return nil, &UnsupportedError{l.table, "deletion vectors", fmt.Sprintf("its checkpoint at version %d has some; rewrite the table without them (REORG … APPLY PURGE) and drop the feature", cp.version)}
		case errors.Is(err, errSidecars):
			return nil, &UnsupportedError{l.table, "the reader feature v2Checkpoint", "its checkpoints have sidecar files; set delta.checkpointPolicy to classic and drop the feature"}
		default:
			return nil, &CheckpointError{Key: part.Key, Err: err}
		}
	}
	if c.protocol == nil || c.metadata == nil || c.metadata.ID == "" {
		return nil, &CheckpointError{Key: cp.parts[0].Key, Err: errors.New("it holds no protocol, or no metaData with an id")}
	}
	return c.snapshot(l.table, cp.version), nil
}

func (c *content) readPart(ctx context.Context, s objstore.Store, part objstore.Info) error {
	r, err := parquetfile.OpenReader(ctx, s, part.Key, parquetfile.ReaderOptions{Size: part.Size, BatchRows: checkpointRows})
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		rec, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = c.takeRecord(rec)
		rec.Release()
		if err != nil {
			return err
		}
	}
}

// takeRecord adds the actions of a batch: in each row one of its columns is set.
func (c *content) takeRecord(rec arrow.Record) error {
	rows := map[string]actions{}
	for _, name := range []string{"protocol", "metaData", "txn", "add", "remove", "sidecar"} {
		a, err := actionsOf(rec, name)
		if err != nil {
			return err
		}
		rows[name] = a
	}
	for i := range int(rec.NumRows()) {
		var err error
		switch {
		case rows["add"].has(i):
			err = c.takeAdd(rows["add"], i)
		case rows["remove"].has(i):
			err = c.takeRemove(rows["remove"], i)
		case rows["txn"].has(i):
			t := rows["txn"]
			m := mark{version: t.int("version", i), updated: t.int("lastUpdated", i)}
			c.txns = append(c.txns, treeEntry[mark]{t.text("appId", i), m})
		case rows["protocol"].has(i):
			p := rows["protocol"]
			c.protocol = &Protocol{
				MinReaderVersion: int32(p.int("minReaderVersion", i)), MinWriterVersion: int32(p.int("minWriterVersion", i)),
				ReaderFeatures: p.list("readerFeatures", i), WriterFeatures: p.list("writerFeatures", i),
			}
		case rows["metaData"].has(i):
			c.takeMetadata(rows["metaData"], i)
		case rows["sidecar"].has(i):
			err = errSidecars
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *content) takeMetadata(a actions, i int) {
	m := Metadata{
		ID: a.text("id", i), Name: a.text("name", i), Description: a.text("description", i),
		SchemaString: a.text("schemaString", i), PartitionColumns: a.list("partitionColumns", i),
		CreatedTime: a.int("createdTime", i), Configuration: a.pairs("configuration", i),
	}
	if format, ok := a.fields["format"].(*array.Struct); ok {
		f := actions{format, fieldsOf(format)}
		m.Format = Format{Provider: f.text("provider", i), Options: f.pairs("options", i)}
	}
	m = m.normal()
	c.metadata = &m
}

func (c *content) takeAdd(a actions, i int) error {
	if a.set("deletionVector", i) {
		return errDeletionVector
	}
	add, err := decodeAdd(&addJSON{
		Path: a.text("path", i), Size: a.int("size", i), ModificationTime: a.int("modificationTime", i),
		DataChange: a.int("dataChange", i) != 0, Stats: a.text("stats", i),
		PartitionValues: a.pairs("partitionValues", i), Tags: a.pairs("tags", i),
	})
	if err != nil {
		return err
	}
	c.files = append(c.files, treeEntry[*dataFile]{add.Path, newFile(add)})
	return nil
}

// takeRemove adds a tombstone. That of a deletion vector stands for rows, not for a file.
func (c *content) takeRemove(a actions, i int) error {
	if a.set("deletionVector", i) {
		return nil
	}
	uri := a.text("path", i)
	path, err := decodePath(uri)
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	t := tombstone{at: a.int("deletionTimestamp", i), size: a.int("size", i), uri: oddURI(uri, path)}
	c.tombstones = append(c.tombstones, treeEntry[tombstone]{path, t})
	return nil
}

// actions are the rows of a batch that hold actions of one kind. A field that the file lacks reads as null. Strings are
// copied, since they would keep the whole batch in memory.
type actions struct {
	rows   *array.Struct // nil if the file has none of the kind
	fields map[string]arrow.Array
}

// actionFields are the fields that are read, by kind of value. Fields of another type than expected make the file
// unreadable; all other fields are nobody's business here.
var actionFields = map[string]func(arrow.Array) bool{
	"protocol.minReaderVersion": isNumber, "protocol.minWriterVersion": isNumber,
	"protocol.readerFeatures": isList, "protocol.writerFeatures": isList,
	"metaData.id": isText, "metaData.name": isText, "metaData.description": isText, "metaData.schemaString": isText,
	"metaData.partitionColumns": isList, "metaData.createdTime": isNumber, "metaData.configuration": isPairs,
	"metaData.format": func(a arrow.Array) bool { _, ok := a.(*array.Struct); return ok },
	"txn.appId":       isText, "txn.version": isNumber, "txn.lastUpdated": isNumber,
	"add.path": isText, "add.size": isNumber, "add.modificationTime": isNumber, "add.dataChange": isNumber,
	"add.stats": isText, "add.partitionValues": isPairs, "add.tags": isPairs,
	"remove.path": isText, "remove.deletionTimestamp": isNumber, "remove.size": isNumber,
}

func actionsOf(rec arrow.Record, name string) (actions, error) {
	at := rec.Schema().FieldIndices(name)
	if len(at) == 0 {
		return actions{}, nil
	}
	rows, ok := rec.Column(at[0]).(*array.Struct)
	if !ok {
		return actions{}, fmt.Errorf("column %s is a %s, not a struct", name, rec.Column(at[0]).DataType())
	}
	a := actions{rows, fieldsOf(rows)}
	for field, values := range a.fields {
		if fits := actionFields[name+"."+field]; fits != nil && !fits(values) {
			return actions{}, fmt.Errorf("column %s.%s has the unexpected type %s", name, field, values.DataType())
		}
	}
	return a, nil
}

func fieldsOf(s *array.Struct) map[string]arrow.Array {
	fields := make(map[string]arrow.Array, s.NumField())
	for i, f := range s.DataType().(*arrow.StructType).Fields() {
		fields[f.Name] = s.Field(i)
	}
	return fields
}

func isText(a arrow.Array) bool {
	switch a.(type) {
	case *array.String, *array.Binary:
		return true
	}
	return false
}

func isNumber(a arrow.Array) bool {
	switch a.(type) {
	case *array.Int64, *array.Int32, *array.Boolean:
		return true
	}
	return false
}

func isList(a arrow.Array) bool {
	l, ok := a.(*array.List)
	return ok && isText(l.ListValues())
}

func isPairs(a arrow.Array) bool {
	m, ok := a.(*array.Map)
	return ok && isText(m.Keys()) && isText(m.Items())
}

func (a actions) has(i int) bool { return a.rows != nil && a.rows.IsValid(i) }

// set reports whether there is any value.
func (a actions) set(name string, i int) bool {
	v := a.fields[name]
	return v != nil && v.IsValid(i)
}

func textAt(a arrow.Array, i int) string {
	if a.IsNull(i) {
		return ""
	}
	switch a := a.(type) {
	case *array.String:
		return strings.Clone(a.Value(i))
	case *array.Binary:
		return string(a.Value(i))
	}
	return ""
}

func (a actions) text(name string, i int) string {
	if !a.set(name, i) {
		return ""
	}
	return textAt(a.fields[name], i)
}

// int reads a number; true is 1.
func (a actions) int(name string, i int) int64 {
	if !a.set(name, i) {
		return 0
	}
	switch v := a.fields[name].(type) {
	case *array.Int64:
		return v.Value(i)
	case *array.Int32:
		return int64(v.Value(i))
	case *array.Boolean:
		if v.Value(i) {
			return 1
		}
	}
	return 0
}

// list returns nil for a null list and an empty one for an empty list.
func (a actions) list(name string, i int) []string {
	if !a.set(name, i) {
		return nil
	}
	l := a.fields[name].(*array.List)
	from, to := l.ValueOffsets(i)
	out := make([]string, 0, to-from)
	for j := from; j < to; j++ {
		out = append(out, textAt(l.ListValues(), int(j)))
	}
	return out
}

// pairs returns a map, in which a null value is "".
func (a actions) pairs(name string, i int) map[string]string {
	if !a.set(name, i) {
		return nil
	}
	m, ok := a.fields[name].(*array.Map)
	if !ok {
		return nil
	}
	from, to := m.ValueOffsets(i)
	out := make(map[string]string, to-from)
	for j := from; j < to; j++ {
		out[textAt(m.Keys(), int(j))] = textAt(m.Items(), int(j))
	}
	return out
}

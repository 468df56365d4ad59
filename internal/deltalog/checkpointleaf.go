package deltalog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
)

const (
	// leafBatch is how many values of a column are decoded at once.
	leafBatch = 1024
	// cellsMax bounds the entries of one list or map of a row: features, properties, tags.
	cellsMax = 1 << 20
)

// Columns that are read, by where they stand; everything below a map is its key and value, everything below a list its
// element, whatever the writer called the levels in between.
var (
	scalarColumns = []string{
		"protocol.minReaderVersion", "protocol.minWriterVersion",
		"metaData.id", "metaData.name", "metaData.description", "metaData.format.provider", "metaData.schemaString", "metaData.createdTime",
		"txn.appId", "txn.version", "txn.lastUpdated",
		"add.path", "add.size", "add.modificationTime", "add.dataChange", "add.stats",
		"remove.path", "remove.deletionTimestamp", "remove.size",
		"sidecar.path",
	}
	listColumns = []string{"protocol.readerFeatures", "protocol.writerFeatures", "metaData.partitionColumns"}
	mapColumns  = []string{"metaData.format.options", "metaData.configuration", "add.partitionValues", "add.tags"}
	// Any value of a deletion vector means that there is one.
	vectorColumns = []string{"add.deletionVector", "remove.deletionVector"}
)

// checkpointColumn names the column of a leaf for use in a checkpointRow; "" if it is not read.
func checkpointColumn(path []string) string {
	for depth := 2; depth <= 3 && depth <= len(path); depth++ {
		name := path[0] + "." + path[1]
		if depth == 3 {
			name += "." + path[2]
		}
		below := len(path) - depth
		switch {
		case below == 0 && slices.Contains(scalarColumns, name):
			return name
		case below > 0 && slices.Contains(listColumns, name):
			return name
		case below > 1 && slices.Contains(mapColumns, name):
			if path[len(path)-1] == "key" {
				return name + ".key"
			}
			return name + ".value"
		case below == 1 && slices.Contains(vectorColumns, name) && path[len(path)-1] == "storageType":
			return name
		}
	}
	return ""
}

// checkpointRow is the current row, by column. A column that the file lacks is nil and reads as null.
type checkpointRow map[string]*leaf

func (r checkpointRow) has(name string) bool {
	l := r[name]
	return l != nil && len(l.row) == 1 && l.row[0].set
}

func (r checkpointRow) text(name string) string {
	if !r.has(name) {
		return ""
	}
	return string(r[name].row[0].bytes)
}

func (r checkpointRow) int(name string) int64 {
	if !r.has(name) {
		return 0
	}
	return r[name].row[0].int
}

func (r checkpointRow) bool(name string) bool { return r.int(name) != 0 }

// list returns nil for a null list and an empty one for an empty list.
func (r checkpointRow) list(name string) []string {
	l := r[name]
	if l == nil || len(l.row) == 0 || l.row[0].null {
		return nil
	}
	out := []string{}
	for _, c := range l.row {
		if c.set {
			out = append(out, string(c.bytes))
		}
	}
	return out
}

// pairs returns a map, in which a null value is "".
func (r checkpointRow) pairs(name string) map[string]string {
	keys, values := r[name+".key"], r[name+".value"]
	if keys == nil || values == nil || len(keys.row) == 0 || !keys.row[0].set {
		return nil
	}
	out := make(map[string]string, len(keys.row))
	for i, k := range keys.row {
		if i < len(values.row) {
			out[string(k.bytes)] = string(values.row[i].bytes)
		}
	}
	return out
}

// cell is one value of a leaf column within a row.
type cell struct {
	set   bool // there is a value
	null  bool // there is not even an empty list
	int   int64
	bytes []byte // valid until the leaf's next row
}

// leaf reads one leaf column of a row group row by row.
type leaf struct {
	name   string
	read   func(defs, reps []int16) (levels int64, err error) // decodes the next batch
	value  func(i int) cell                                   // the i-th value of the batch
	maxDef int16
	maxRep int16
	// emptyDef is the definition level of a list or map that is there and empty.
	emptyDef int16

	defs, reps []int16
	levels     int // decoded levels, of which at have been used
	at         int
	values     int // used values
	row        []cell
}

var errShort = errors.New("a column ends before its row group does")

func newLeaf(name string, rd file.ColumnChunkReader) (*leaf, error) {
	d := rd.Descriptor()
	l := &leaf{
		name: name, maxDef: d.MaxDefinitionLevel(), maxRep: d.MaxRepetitionLevel(),
		defs: make([]int16, leafBatch), reps: make([]int16, leafBatch),
	}
	if d.MaxRepetitionLevel() > 1 {
		return nil, fmt.Errorf("column %s is a list within a list", d.Path())
	}
	if n := d.SchemaNode(); l.maxRep > 0 {
		// Below the repeated level there may be one more for a value that may be null.
		l.emptyDef = l.maxDef - 1
		if n.RepetitionType() == parquet.Repetitions.Optional {
			l.emptyDef--
		}
	}
	switch rd := rd.(type) {
	case *file.ByteArrayColumnChunkReader:
		values := make([]parquet.ByteArray, leafBatch)
		l.read = func(defs, reps []int16) (int64, error) {
			n, _, err := rd.ReadBatch(leafBatch, values, defs, reps)
			return n, err
		}
		l.value = func(i int) cell { return cell{set: true, bytes: values[i]} }
	case *file.Int64ColumnChunkReader:
		values := make([]int64, leafBatch)
		l.read = func(defs, reps []int16) (int64, error) {
			n, _, err := rd.ReadBatch(leafBatch, values, defs, reps)
			return n, err
		}
		l.value = func(i int) cell { return cell{set: true, int: values[i]} }
	case *file.Int32ColumnChunkReader:
		values := make([]int32, leafBatch)
		l.read = func(defs, reps []int16) (int64, error) {
			n, _, err := rd.ReadBatch(leafBatch, values, defs, reps)
			return n, err
		}
		l.value = func(i int) cell { return cell{set: true, int: int64(values[i])} }
	case *file.BooleanColumnChunkReader:
		values := make([]bool, leafBatch)
		l.read = func(defs, reps []int16) (int64, error) {
			n, _, err := rd.ReadBatch(leafBatch, values, defs, reps)
			return n, err
		}
		l.value = func(i int) cell {
			if values[i] {
				return cell{set: true, int: 1}
			}
			return cell{set: true}
		}
	default:
		return nil, fmt.Errorf("column %s has the unexpected type %v", d.Path(), d.PhysicalType())
	}
	if text := wantsText(name); text != (d.PhysicalType() == parquet.Types.ByteArray) {
		return nil, fmt.Errorf("column %s has the unexpected type %v", d.Path(), d.PhysicalType())
	}
	return l, nil
}

// numberColumns hold numbers or booleans; all others hold text.
var numberColumns = []string{
	"protocol.minReaderVersion", "protocol.minWriterVersion", "metaData.createdTime", "txn.version", "txn.lastUpdated",
	"add.size", "add.modificationTime", "add.dataChange", "remove.deletionTimestamp", "remove.size",
}

func wantsText(name string) bool { return !slices.Contains(numberColumns, name) }

// next moves to the next row.
func (l *leaf) next() error {
	l.row = l.row[:0]
	if err := l.fill(); err != nil {
		return err
	}
	if l.at == l.levels {
		return fmt.Errorf("%s: %w", l.name, errShort)
	}
	for {
		c := cell{}
		if l.maxDef == 0 || l.defs[l.at] == l.maxDef {
			if c = l.value(l.values); l.maxRep > 0 {
				c.bytes = slices.Clone(c.bytes) // the row may go on in the next batch
			}
			l.values++
		} else {
			c.null = l.defs[l.at] < l.emptyDef
		}
		if len(l.row) == cellsMax {
			return fmt.Errorf("%s: more than %d entries in one row", l.name, cellsMax)
		}
		l.row = append(l.row, c)
		l.at++
		if l.maxRep == 0 {
			return nil
		}
		if err := l.fill(); err != nil {
			return err
		}
		if l.at == l.levels || l.reps[l.at] == 0 {
			return nil
		}
	}
}

// fill decodes the next batch once the last one is used up; at the end of the row group there is none.
func (l *leaf) fill() error {
	if l.at < l.levels {
		return nil
	}
	n, err := l.read(l.defs, l.reps)
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	l.levels, l.at, l.values = int(n), 0, 0
	return nil
}

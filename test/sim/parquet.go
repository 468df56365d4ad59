package sim

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// row is one row of the load's tables.
type row struct {
	text    string // all columns that are not null, but _op
	key     string // of an upsert table
	seq     int64
	id      int64 // unique
	deletes bool
}

// decoded remembers what was read, by the address of a file's first byte: files are immutable, and several checks read
// the same one.
type decoded map[*byte][]row

// read reads a file with pqarrow.
func (d decoded) read(body []byte) ([]row, error) {
	if len(body) == 0 {
		return nil, errors.New("the file is empty or missing")
	}
	if rows, ok := d[&body[0]]; ok {
		return rows, nil
	}
	f, err := file.NewParquetReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	reader, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	t, err := reader.ReadTable(context.Background())
	if err != nil {
		return nil, err
	}
	defer t.Release()
	batches := array.NewTableReader(t, 0)
	defer batches.Release()
	var rows []row
	for batches.Next() {
		rows = append(rows, rowsOf(batches.Record())...)
	}
	d[&body[0]] = rows
	return rows, batches.Err()
}

// hasColumn says whether a file has a column, be it of nothing but nulls.
func hasColumn(body []byte, name string) bool {
	f, err := file.NewParquetReader(bytes.NewReader(body))
	if err != nil {
		return false
	}
	defer f.Close()
	return f.MetaData().Schema.ColumnIndexByName(name) >= 0
}

func rowsOf(rec arrow.Record) []row {
	rows := make([]row, rec.NumRows())
	for i := range rows {
		var cells []string
		for c, field := range rec.Schema().Fields() {
			col := rec.Column(c)
			if col.IsNull(i) {
				continue
			}
			text := col.ValueStr(i)
			switch field.Name {
			case "_op":
				rows[i].deletes = text == "d"
				continue
			case "k":
				rows[i].key = text
			case "id":
				rows[i].id = col.(*array.Int64).Value(i)
			case "seq":
				rows[i].seq = col.(*array.Int64).Value(i)
			}
			cells = append(cells, field.Name+"="+text)
		}
		slices.Sort(cells)
		rows[i].text = strings.Join(cells, " ")
	}
	return rows
}

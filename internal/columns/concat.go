package columns

import (
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// ErrTooLarge says that a string, binary or list column of the result would need offsets above 2^31-1. Nothing was
// built; ask for fewer rows at a time.
var ErrTooLarge = errors.New("a column of this batch would cross 2 GiB: use fewer rows per batch")

// offsetMax is the largest offset of Arrow's string, binary and list types, whose offsets are 32 bits wide.
const offsetMax = math.MaxInt32

// Run is n rows of a record, starting at row From.
type Run struct {
	Source  arrow.Record
	From, N int
}

// Concat assembles a record of the given schema from runs of rows, in order. Columns are matched by position and must
// have equal types. A run may be empty; no runs give an empty record.
func Concat(mem memory.Allocator, schema *arrow.Schema, runs []Run) (arrow.Record, error) {
	rows, err := countRows(schema, runs)
	if err != nil {
		return nil, err
	}
	out := make([]arrow.Array, 0, schema.NumFields())
	defer func() { releaseAll(out) }()
	pieces := make([]piece, 0, len(runs))
	for i, field := range schema.Fields() {
		pieces = pieces[:0]
		for _, run := range runs {
			if run.N > 0 {
				pieces = append(pieces, piece{run.Source.Column(i), run.From, run.N})
			}
		}
		column, err := splice(mem, field.Type, pieces, rows)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", field.Name, err)
		}
		out = append(out, column)
	}
	return array.NewRecord(schema, out, int64(rows)), nil
}

func countRows(schema *arrow.Schema, runs []Run) (int, error) {
	rows := 0
	checked := map[arrow.Record]bool{} // a merge alternates between few sources over many runs
	for _, run := range runs {
		if run.From < 0 || run.N < 0 || int64(run.From)+int64(run.N) > run.Source.NumRows() {
			return 0, fmt.Errorf("run of %d rows from row %d in a record of %d rows", run.N, run.From, run.Source.NumRows())
		}
		rows += run.N
		if checked[run.Source] {
			continue
		}
		checked[run.Source] = true
		if int(run.Source.NumCols()) != schema.NumFields() {
			return 0, fmt.Errorf("record of %d columns where the schema has %d", run.Source.NumCols(), schema.NumFields())
		}
		for i, column := range run.Source.Columns() {
			if !sameLayout(column.DataType(), schema.Field(i).Type) {
				return 0, fmt.Errorf("column %q is %s where the schema says %s",
					schema.Field(i).Name, column.DataType(), schema.Field(i).Type)
			}
		}
	}
	return rows, nil
}

// piece is n values of an array, starting at value from.
type piece struct {
	source  arrow.Array
	from, n int
}

// splice builds one array of n values in all from pieces.
func splice(mem memory.Allocator, dt arrow.DataType, pieces []piece, n int) (arrow.Array, error) {
	switch dt := dt.(type) {
	case *arrow.BooleanType:
		return spliceBits(mem, dt, pieces, n), nil
	case *arrow.StringType, *arrow.BinaryType:
		return spliceBytes(mem, dt, pieces, n)
	case *arrow.StructType:
		return spliceStruct(mem, dt, pieces, n)
	case *arrow.ListType:
		return spliceList(mem, dt, dt.Elem(), pieces, n)
	case *arrow.MapType:
		return spliceList(mem, dt, dt.Elem(), pieces, n)
	case arrow.FixedWidthDataType:
		if width := fixedWidth(dt); width > 0 {
			return spliceFixed(mem, dt, width, pieces, n), nil
		}
	}
	return nil, unsupported(dt)
}

func unsupported(dt arrow.DataType) error {
	return fmt.Errorf("type %s is not one a Tidemark file holds", dt)
}

// fixedWidth is the width in bytes of the values of a primitive type, 0 for types that are not plain bytes.
func fixedWidth(dt arrow.FixedWidthDataType) int {
	switch dt.ID() {
	case arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.UINT8, arrow.UINT16, arrow.UINT32, arrow.UINT64,
		arrow.FLOAT16, arrow.FLOAT32, arrow.FLOAT64, arrow.DATE32, arrow.DATE64, arrow.TIMESTAMP, arrow.TIME32,
		arrow.TIME64, arrow.DECIMAL128, arrow.DECIMAL256, arrow.FIXED_SIZE_BINARY, arrow.DURATION:
		return dt.BitWidth() / 8
	}
	return 0
}

// spliceValidity returns the validity bitmap of the pieces and the number of nulls; the bitmap is nil if there are none.
func spliceValidity(mem memory.Allocator, pieces []piece, n int) (*memory.Buffer, int) {
	anyNull := false
	for _, p := range pieces {
		if p.source.NullN() > 0 {
			anyNull = true
			break
		}
	}
	if !anyNull {
		return nil, 0
	}
	bitmap := NewBuffer(mem, int(bitutil.BytesForBits(int64(n))))
	at := 0
	for _, p := range pieces {
		if bits := p.source.NullBitmapBytes(); p.source.NullN() > 0 && len(bits) > 0 {
			copyBits(bitmap.Bytes(), at, bits, p.source.Data().Offset()+p.from, p.n)
		} else {
			setBits(bitmap.Bytes(), at, p.n)
		}
		at += p.n
	}
	nulls := n - bitutil.CountSetBits(bitmap.Bytes(), 0, n)
	if nulls == 0 {
		bitmap.Release()
		return nil, 0
	}
	return bitmap, nulls
}

func spliceFixed(mem memory.Allocator, dt arrow.DataType, width int, pieces []piece, n int) arrow.Array {
	validity, nulls := spliceValidity(mem, pieces, n)
	values := NewBuffer(mem, n*width)
	out := values.Bytes()
	for _, p := range pieces {
		if buf := p.source.Data().Buffers()[1]; buf != nil {
			start := (p.source.Data().Offset() + p.from) * width
			copy(out[:p.n*width], buf.Bytes()[start:])
		}
		out = out[p.n*width:]
	}
	return Make(dt, n, nulls, nil, validity, values)
}

func spliceBits(mem memory.Allocator, dt arrow.DataType, pieces []piece, n int) arrow.Array {
	validity, nulls := spliceValidity(mem, pieces, n)
	values := NewBuffer(mem, int(bitutil.BytesForBits(int64(n))))
	at := 0
	for _, p := range pieces {
		if buf := p.source.Data().Buffers()[1]; buf != nil {
			copyBits(values.Bytes(), at, buf.Bytes(), p.source.Data().Offset()+p.from, p.n)
		}
		at += p.n
	}
	return Make(dt, n, nulls, nil, validity, values)
}

func spliceBytes(mem memory.Allocator, dt arrow.DataType, pieces []piece, n int) (arrow.Array, error) {
	total := int64(0)
	for _, p := range pieces {
		offsets := rawOffsets(p.source)
		total += int64(offsets[p.from+p.n]) - int64(offsets[p.from])
	}
	if total > offsetMax {
		return nil, ErrTooLarge
	}
	validity, nulls := spliceValidity(mem, pieces, n)
	offsetBuf := NewBuffer(mem, arrow.Int32Traits.BytesRequired(n+1))
	values := NewBuffer(mem, int(total))
	offsets := arrow.Int32Traits.CastFromBytes(offsetBuf.Bytes())
	row, at := 0, int32(0)
	for _, p := range pieces {
		src := rawOffsets(p.source)[p.from : p.from+p.n+1]
		shift := at - src[0]
		dst := offsets[row : row+len(src)]
		for i, o := range src {
			dst[i] = o + shift
		}
		if size := src[p.n] - src[0]; size > 0 {
			copy(values.Bytes()[at:at+size], p.source.Data().Buffers()[2].Bytes()[src[0]:src[p.n]])
			at += size
		}
		row += p.n
	}
	return Make(dt, n, nulls, nil, validity, offsetBuf, values), nil
}

func spliceStruct(mem memory.Allocator, dt *arrow.StructType, pieces []piece, n int) (arrow.Array, error) {
	children := make([]arrow.Array, 0, dt.NumFields())
	defer func() { releaseAll(children) }()
	below := make([]piece, len(pieces))
	for i, field := range dt.Fields() {
		for j, p := range pieces {
			below[j] = piece{p.source.(*array.Struct).Field(i), p.from, p.n}
		}
		child, err := splice(mem, field.Type, below, n)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", field.Name, err)
		}
		children = append(children, child)
	}
	validity, nulls := spliceValidity(mem, pieces, n)
	return Make(dt, n, nulls, children, validity), nil
}

func spliceList(mem memory.Allocator, dt, elem arrow.DataType, pieces []piece, n int) (arrow.Array, error) {
	offsetBuf := NewBuffer(mem, arrow.Int32Traits.BytesRequired(n+1))
	offsets := arrow.Int32Traits.CastFromBytes(offsetBuf.Bytes())
	below := make([]piece, 0, len(pieces))
	row, total := 0, int64(0)
	for _, p := range pieces {
		src := rawOffsets(p.source)
		values := listValues(p.source)
		hasNulls := p.source.NullN() > 0
		for i := p.from; i < p.from+p.n; i++ {
			offsets[row] = int32(total)
			row++
			size := int(src[i+1] - src[i])
			if size == 0 || hasNulls && p.source.IsNull(i) {
				continue
			}
			below = appendPiece(below, piece{values, int(src[i]), size})
			total += int64(size)
			if total > offsetMax {
				offsetBuf.Release()
				return nil, ErrTooLarge
			}
		}
	}
	offsets[n] = int32(total)
	child, err := splice(mem, elem, below, int(total))
	if err != nil {
		offsetBuf.Release()
		return nil, fmt.Errorf("element: %w", err)
	}
	defer child.Release()
	validity, nulls := spliceValidity(mem, pieces, n)
	return Make(dt, n, nulls, []arrow.Array{child}, validity, offsetBuf), nil
}

// appendPiece appends a piece, joining it to the last one if that ends where it starts.
func appendPiece(pieces []piece, p piece) []piece {
	if last := len(pieces) - 1; last >= 0 && pieces[last].source == p.source && pieces[last].from+pieces[last].n == p.from {
		pieces[last].n += p.n
		return pieces
	}
	return append(pieces, p)
}

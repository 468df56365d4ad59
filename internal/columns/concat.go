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
	var sources []arrow.Record
	at := map[arrow.Record]int32{}
	ranges := make([]Range, len(runs))
	for i, run := range runs {
		n, ok := at[run.Source]
		if !ok {
			n = int32(len(sources))
			at[run.Source], sources = n, append(sources, run.Source)
		}
		if run.From < 0 || run.N < 0 || int64(run.From)+int64(run.N) > run.Source.NumRows() {
			return nil, outside(run.From, run.N, run.Source.NumRows())
		}
		ranges[i] = Range{n, int32(run.From), int32(run.N)}
	}
	return Splice(mem, schema, sources, ranges)
}

// Range is N rows of one of several sources, from row From on. It has no pointers: a merge makes millions of them, which
// the garbage collector would otherwise look through again and again.
type Range struct{ Source, From, N int32 }

func outside(from, n int, rows int64) error {
	return fmt.Errorf("run of %d rows from row %d in a record of %d rows", n, from, rows)
}

// Splice is Concat for runs of few sources.
func Splice(mem memory.Allocator, schema *arrow.Schema, sources []arrow.Record, ranges []Range) (arrow.Record, error) {
	for _, source := range sources {
		if int(source.NumCols()) != schema.NumFields() {
			return nil, fmt.Errorf("record of %d columns where the schema has %d", source.NumCols(), schema.NumFields())
		}
		for i, column := range source.Columns() {
			if !sameLayout(column.DataType(), schema.Field(i).Type) {
				return nil, fmt.Errorf("column %q is %s where the schema says %s",
					schema.Field(i).Name, column.DataType(), schema.Field(i).Type)
			}
		}
	}
	rows := 0
	for _, r := range ranges {
		if r.From < 0 || r.N < 0 || int64(r.From)+int64(r.N) > sources[r.Source].NumRows() {
			return nil, outside(int(r.From), int(r.N), sources[r.Source].NumRows())
		}
		rows += int(r.N)
	}
	out := make([]arrow.Array, 0, schema.NumFields())
	defer func() { releaseAll(out) }()
	arrays := make([]arrow.Array, len(sources))
	for i, field := range schema.Fields() {
		for j, source := range sources {
			arrays[j] = source.Column(i)
		}
		column, err := splice(mem, field.Type, pieces{arrays, ranges}, rows)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", field.Name, err)
		}
		out = append(out, column)
	}
	return array.NewRecord(schema, out, int64(rows)), nil
}

// pieces are ranges of arrays.
type pieces struct {
	sources []arrow.Array
	ranges  []Range
}

// splice builds one array of n values in all from pieces.
func splice(mem memory.Allocator, dt arrow.DataType, p pieces, n int) (arrow.Array, error) {
	switch dt := dt.(type) {
	case *arrow.BooleanType:
		return spliceBits(mem, dt, p, n), nil
	case *arrow.StringType, *arrow.BinaryType:
		return spliceBytes(mem, dt, p, n)
	case *arrow.StructType:
		return spliceStruct(mem, dt, p, n)
	case *arrow.ListType:
		return spliceList(mem, dt, dt.Elem(), p, n)
	case *arrow.MapType:
		return spliceList(mem, dt, dt.Elem(), p, n)
	case arrow.FixedWidthDataType:
		if width := fixedWidth(dt); width > 0 {
			return spliceFixed(mem, dt, width, p, n), nil
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
func spliceValidity(mem memory.Allocator, p pieces, n int) (*memory.Buffer, int) {
	bits := make([][]byte, len(p.sources)) // nil: no nulls
	offsets := make([]int, len(p.sources))
	anyNull := false
	for i, source := range p.sources {
		if b := source.NullBitmapBytes(); source.NullN() > 0 && len(b) > 0 {
			bits[i], offsets[i], anyNull = b, source.Data().Offset(), true
		}
	}
	if !anyNull {
		return nil, 0
	}
	bitmap := NewBuffer(mem, int(bitutil.BytesForBits(int64(n))))
	out, at := bitmap.Bytes(), 0
	for _, r := range p.ranges {
		if b := bits[r.Source]; b != nil {
			copyBits(out, at, b, offsets[r.Source]+int(r.From), int(r.N))
		} else {
			setBits(out, at, int(r.N))
		}
		at += int(r.N)
	}
	nulls := n - bitutil.CountSetBits(out, 0, n)
	if nulls == 0 {
		bitmap.Release()
		return nil, 0
	}
	return bitmap, nulls
}

func spliceFixed(mem memory.Allocator, dt arrow.DataType, width int, p pieces, n int) arrow.Array {
	validity, nulls := spliceValidity(mem, p, n)
	values := NewBuffer(mem, n*width)
	from := make([][]byte, len(p.sources)) // nil: a source without values
	for i, source := range p.sources {
		if buf := source.Data().Buffers()[1]; buf != nil {
			from[i] = buf.Bytes()[source.Data().Offset()*width:]
		}
	}
	out := values.Bytes()
	for _, r := range p.ranges {
		src, start, size := from[r.Source], int(r.From)*width, int(r.N)*width
		switch {
		case src == nil:
		case size == 8: // a single value, as they are in a merge of many changes
			*(*[8]byte)(out) = *(*[8]byte)(src[start:])
		case size == 4:
			*(*[4]byte)(out) = *(*[4]byte)(src[start:])
		default:
			copy(out[:size], src[start:])
		}
		out = out[size:]
	}
	return Make(dt, n, nulls, nil, validity, values)
}

func spliceBits(mem memory.Allocator, dt arrow.DataType, p pieces, n int) arrow.Array {
	validity, nulls := spliceValidity(mem, p, n)
	values := NewBuffer(mem, int(bitutil.BytesForBits(int64(n))))
	at := 0
	for _, r := range p.ranges {
		source := p.sources[r.Source]
		if buf := source.Data().Buffers()[1]; buf != nil {
			copyBits(values.Bytes(), at, buf.Bytes(), source.Data().Offset()+int(r.From), int(r.N))
		}
		at += int(r.N)
	}
	return Make(dt, n, nulls, nil, validity, values)
}

func spliceBytes(mem memory.Allocator, dt arrow.DataType, p pieces, n int) (arrow.Array, error) {
	offsetsOf := make([][]int32, len(p.sources))
	valuesOf := make([][]byte, len(p.sources))
	for i, source := range p.sources {
		offsetsOf[i] = rawOffsets(source)
		if buf := source.Data().Buffers()[2]; buf != nil {
			valuesOf[i] = buf.Bytes()
		}
	}
	total := int64(0)
	for _, r := range p.ranges {
		if r.N > 0 {
			total += int64(offsetsOf[r.Source][r.From+r.N]) - int64(offsetsOf[r.Source][r.From])
		}
	}
	if total > offsetMax {
		return nil, ErrTooLarge
	}
	validity, nulls := spliceValidity(mem, p, n)
	offsetBuf := NewBuffer(mem, arrow.Int32Traits.BytesRequired(n+1))
	values := NewBuffer(mem, int(total))
	offsets, out := arrow.Int32Traits.CastFromBytes(offsetBuf.Bytes()), values.Bytes()
	row, at := 0, int32(0)
	for _, r := range p.ranges {
		if r.N == 0 {
			continue
		}
		src := offsetsOf[r.Source][r.From : r.From+r.N+1]
		shift := at - src[0]
		dst := offsets[row+1 : row+len(src)]
		for i, o := range src[1:] {
			dst[i] = o + shift
		}
		at += int32(copy(out[at:], valuesOf[r.Source][src[0]:src[r.N]]))
		row += int(r.N)
	}
	return Make(dt, n, nulls, nil, validity, offsetBuf, values), nil
}

func spliceStruct(mem memory.Allocator, dt *arrow.StructType, p pieces, n int) (arrow.Array, error) {
	children := make([]arrow.Array, 0, dt.NumFields())
	defer func() { releaseAll(children) }()
	below := pieces{make([]arrow.Array, len(p.sources)), p.ranges}
	for i, field := range dt.Fields() {
		for j, source := range p.sources {
			below.sources[j] = source.(*array.Struct).Field(i)
		}
		child, err := splice(mem, field.Type, below, n)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", field.Name, err)
		}
		children = append(children, child)
	}
	validity, nulls := spliceValidity(mem, p, n)
	return Make(dt, n, nulls, children, validity), nil
}

func spliceList(mem memory.Allocator, dt, elem arrow.DataType, p pieces, n int) (arrow.Array, error) {
	offsetBuf := NewBuffer(mem, arrow.Int32Traits.BytesRequired(n+1))
	offsets := arrow.Int32Traits.CastFromBytes(offsetBuf.Bytes())
	below := pieces{make([]arrow.Array, len(p.sources)), make([]Range, 0, len(p.ranges))}
	for i, source := range p.sources {
		below.sources[i] = listValues(source)
	}
	row, total := 0, int64(0)
	for _, r := range p.ranges {
		source := p.sources[r.Source]
		src := rawOffsets(source)
		hasNulls := source.NullN() > 0
		for i := int(r.From); i < int(r.From+r.N); i++ {
			offsets[row] = int32(total)
			row++
			size := src[i+1] - src[i]
			if size == 0 || hasNulls && source.IsNull(i) {
				continue
			}
			below.ranges = appendRange(below.ranges, Range{r.Source, src[i], size})
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
	validity, nulls := spliceValidity(mem, p, n)
	return Make(dt, n, nulls, []arrow.Array{child}, validity, offsetBuf), nil
}

// appendRange appends a range, joining it to the last one if that ends where it starts.
func appendRange(ranges []Range, r Range) []Range {
	if last := len(ranges) - 1; last >= 0 && ranges[last].Source == r.Source && ranges[last].From+ranges[last].N == r.From {
		ranges[last].N += r.N
		return ranges
	}
	return append(ranges, r)
}

package parquetfile

import (
	"errors"
	"fmt"
	"math"

	"tidemark/internal/columns"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// builder turns the rows that the leaf readers have loaded into arrays.
type builder struct {
	mem    memory.Allocator
	leaves map[int]*leafReader // by Parquet column
}

// build makes the array of a node. Parquet flattens nesting into two small numbers per leaf value: the repetition level
// says at which list a value continues, 0 starting a row; the definition level says how many optional or repeated
// steps down to the value are there. Any leaf below a node knows the node's own shape.
func (b *builder) build(n *node) (arrow.Array, error) {
	if n.leaf >= 0 {
		return b.leaves[n.leaf].array(b.mem)
	}
	leaf := b.leaves[n.leaves(nil)[0].leaf]
	switch n.field.Type.(type) {
	case *arrow.StructType:
		return b.buildStruct(n, leaf)
	default:
		return b.buildList(n, leaf)
	}
}

func (b *builder) buildStruct(n *node, leaf *leafReader) (arrow.Array, error) {
	children := make([]arrow.Array, 0, len(n.children))
	defer func() { releaseAll(children) }()
	for _, child := range n.children {
		arr, err := b.build(child)
		if err != nil {
			return nil, err
		}
		children = append(children, arr)
		if arr.Len() != children[0].Len() {
			return nil, fmt.Errorf("field %q has %d values, field %q has %d", child.field.Name, arr.Len(), n.children[0].field.Name, children[0].Len())
		}
	}
	length := children[0].Len()
	if !n.field.Nullable {
		return columns.Make(n.field.Type, length, 0, children, nil), nil
	}
	def, rep := leaf.levels()
	validity := columns.NewBuffer(b.mem, int(bitutil.BytesForBits(int64(length))))
	at, nulls := 0, 0
	for i, d := range def {
		if rep != nil && rep[i] > n.levels.RepLevel || d < n.levels.RepeatedAncestorDefLevel {
			continue // a later element of a list below, or no place for this struct: a list above has no element here
		}
		if at == length {
			validity.Release()
			return nil, errors.New("its levels say more values than its fields have")
		}
		if d >= n.levels.DefLevel {
			bitutil.SetBit(validity.Bytes(), at)
		} else {
			nulls++
		}
		at++
	}
	if at != length {
		validity.Release()
		return nil, errors.New("its levels say fewer values than its fields have")
	}
	if nulls == 0 {
		validity.Release()
		validity = nil
	}
	return columns.Make(n.field.Type, length, nulls, children, validity), nil
}

// buildList makes a list or a map, which is a list of entries. Its definition level is that of a present element; one
// less is an empty list, still less is a null.
func (b *builder) buildList(n *node, leaf *leafReader) (arrow.Array, error) {
	child, err := b.build(n.children[0])
	if err != nil {
		return nil, err
	}
	defer child.Release()
	def, rep := leaf.levels()
	lists := 0
	for i := range def {
		if rep[i] < n.levels.RepLevel && def[i] >= n.levels.RepeatedAncestorDefLevel {
			lists++
		}
	}
	offsetBuf := columns.NewBuffer(b.mem, arrow.Int32Traits.BytesRequired(lists+1))
	offsets := arrow.Int32Traits.CastFromBytes(offsetBuf.Bytes())
	validity := columns.NewBuffer(b.mem, int(bitutil.BytesForBits(int64(lists))))
	at, nulls, elements := 0, 0, int64(0)
	for i, d := range def {
		switch r := rep[i]; {
		case r > n.levels.RepLevel: // within an element
		case r == n.levels.RepLevel: // one more element
			elements++
		case d >= n.levels.RepeatedAncestorDefLevel: // one more list
			offsets[at] = int32(elements)
			if d >= n.levels.DefLevel {
				elements++
			}
			if !n.field.Nullable || d >= n.levels.DefLevel-1 {
				bitutil.SetBit(validity.Bytes(), at)
			} else {
				nulls++
			}
			at++
		}
	}
	offsets[lists] = int32(min(elements, math.MaxInt32))
	if elements != int64(child.Len()) {
		offsetBuf.Release()
		validity.Release()
		return nil, fmt.Errorf("its levels say %d elements, it has %d", elements, child.Len())
	}
	if nulls == 0 {
		validity.Release()
		validity = nil
	}
	return columns.Make(n.field.Type, lists, nulls, []arrow.Array{child}, validity, offsetBuf), nil
}

func releaseAll(arrays []arrow.Array) {
	for _, arr := range arrays {
		arr.Release()
	}
}

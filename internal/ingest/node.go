package ingest

import (
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
)

// nodeKind is what the values of a column of text have in common. Nulls belong to every kind.
type nodeKind int

const (
	kindNull nodeKind = iota // nulls only, so far
	kindScalar
	kindObject
	kindList
)

func (k nodeKind) String() string {
	return [...]string{"null", "a plain value", "an object", "a list"}[k]
}

// node collects what the typing pass learns about one column of the text inputs (CSV, JSON), over all of them. The root
// is the object whose fields are the columns.
type node struct {
	kind   nodeKind
	first  string // where the kind was first seen, for the error about another kind
	shape  shape  // of scalars
	fields map[string]*node
	order  []string // field names in order of appearance
	elem   *node    // of lists; nil until an element is seen
}

// field returns the node of a field, which it adds if need be.
func (n *node) field(name []byte) *node {
	if f, ok := n.fields[string(name)]; ok {
		return f
	}
	if n.fields == nil {
		n.fields = map[string]*node{}
	}
	f := &node{}
	n.fields[string(name)] = f
	n.order = append(n.order, string(name))
	return f
}

// become gives the node its kind. A column cannot have two: no type holds both a number and an object.
func (n *node) become(kind nodeKind, where func() string) error {
	switch n.kind {
	case kind:
	case kindNull:
		n.kind, n.first = kind, where()
	default:
		return fmt.Errorf("%s here, but %s in %s; no column type holds both", kind, n.kind, n.first)
	}
	return nil
}

// dataType is the narrowest type that holds everything seen.
func (n *node) dataType() arrow.DataType {
	switch {
	case n == nil || n.kind == kindNull:
		return arrow.BinaryTypes.String
	case n.kind == kindList:
		return arrow.ListOf(n.elem.dataType())
	case n.kind == kindObject && len(n.order) > 0:
		return arrow.StructOf(n.arrowFields()...)
	case n.kind == kindObject:
		return arrow.BinaryTypes.String // objects without any field keep their source text, {}
	}
	return n.shape.dataType()
}

func (n *node) arrowFields() []arrow.Field {
	fields := make([]arrow.Field, len(n.order))
	for i, name := range n.order {
		fields[i] = arrow.Field{Name: name, Type: n.fields[name].dataType(), Nullable: true}
	}
	return fields
}

// refine replaces inferred types by those of an existing table, wherever it has the column. inferred has the names that
// the table uses.
func refine(inferred, want arrow.DataType) arrow.DataType {
	switch w := want.(type) {
	case nil:
		return inferred
	case *arrow.StructType:
		s, ok := inferred.(*arrow.StructType)
		if !ok {
			return want
		}
		fields := make([]arrow.Field, s.NumFields())
		for i, f := range s.Fields() {
			if wf, ok := w.FieldByName(f.Name); ok {
				f.Type = refine(f.Type, wf.Type)
			}
			fields[i] = f
		}
		return arrow.StructOf(fields...)
	case *arrow.ListType:
		if l, ok := inferred.(*arrow.ListType); ok {
			return arrow.ListOf(refine(l.Elem(), w.Elem()))
		}
	}
	return want
}

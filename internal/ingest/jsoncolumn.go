package ingest

import (
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// jsonColumn appends JSON values to one builder.
type jsonColumn struct {
	path     string
	b        array.Builder
	text     appendText // plain values; nil for nested types
	anything bool       // a string column, which keeps nested values as their source text
	fields   *jsonFields
	elem     *jsonColumn // of lists, and the values of maps
	key      appendText  // of maps
	notNull  bool
	seen     int64 // the object that had this field last, see jsonFields.turn
}

// jsonFields are the columns of one object: a row, or a struct.
type jsonFields struct {
	byKey map[string]*jsonColumn
	list  []*jsonColumn
	turn  int64 // counts the objects read, so that nobody has to reset what was seen
}

// columnError names the column in which reading a row failed.
type columnError struct {
	path string
	err  error
}

func (e *columnError) Error() string { return fmt.Sprintf("column %q: %v", e.path, e.err) }

// newJSONColumn prepares a column. n gives the names that the file uses, where they differ from the builder's; it is nil
// where nothing is known.
func newJSONColumn(path string, n *node, b array.Builder) (*jsonColumn, error) {
	c := &jsonColumn{path: path, b: b}
	var err error
	switch b := b.(type) {
	case *array.StructBuilder:
		t := b.Type().(*arrow.StructType)
		c.fields = &jsonFields{}
		for i, f := range t.Fields() {
			key, child := f.Name, (*node)(nil)
			if n != nil && n.kind == kindObject {
				key = n.order[i]
				child = n.fields[key]
			}
			fc, err := newJSONColumn(path+"."+key, child, b.FieldBuilder(i))
			if err != nil {
				return nil, err
			}
			fc.notNull = !f.Nullable
			c.fields.add(key, fc)
		}
	case *array.MapBuilder: // before ListBuilder: a map is a list of entries
		t := b.Type().(*arrow.MapType)
		if c.key = textAppender(b.KeyBuilder()); c.key == nil {
			return nil, unsupported(path, t.KeyType())
		}
		if c.elem, err = newJSONColumn(path+"[]", nil, b.ItemBuilder()); err == nil {
			c.elem.notNull = !t.ItemField().Nullable
		}
	case *array.ListBuilder:
		t := b.Type().(*arrow.ListType)
		var child *node
		if n != nil && n.kind == kindList {
			child = n.elem
		}
		if c.elem, err = newJSONColumn(path+"[]", child, b.ValueBuilder()); err == nil {
			c.elem.notNull = !t.ElemField().Nullable
		}
	default:
		if c.text = textAppender(b); c.text == nil {
			return nil, unsupported(path, b.Type())
		}
		_, c.anything = b.(*array.StringBuilder)
	}
	return c, err
}

func unsupported(path string, t arrow.DataType) error {
	return fmt.Errorf("column %q: text cannot be read as %s; ingest Parquet or Arrow IPC instead", path, t)
}

func (f *jsonFields) add(key string, c *jsonColumn) {
	if f.byKey == nil {
		f.byKey = map[string]*jsonColumn{}
	}
	f.byKey[key] = c
	f.list = append(f.list, c)
}

// read appends one object: a value, or a null, to every column.
func (f *jsonFields) read(t *jsonText, depth int) error {
	f.turn++
	err := t.object(depth, func(key []byte) error {
		c, ok := f.byKey[string(key)]
		if !ok {
			return fmt.Errorf("field %s was not there when the file was read first; did the file change?", quote(key))
		}
		if c.seen == f.turn {
			return &columnError{c.path, errors.New("the field is there twice in one object")}
		}
		c.seen = f.turn
		return c.read(t, depth+1)
	})
	if err != nil {
		return err
	}
	for _, c := range f.list {
		if c.seen != f.turn {
			if err := c.null(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *jsonColumn) null() error {
	if c.notNull {
		return &columnError{c.path, errors.New("a null, which the table does not allow here")}
	}
	c.b.AppendNull()
	return nil
}

// read appends one value.
func (c *jsonColumn) read(t *jsonText, depth int) error {
	err := c.value(t, depth)
	if err == nil {
		return nil
	}
	if inner := (*columnError)(nil); errors.As(err, &inner) {
		return err
	}
	return &columnError{c.path, err}
}

func (c *jsonColumn) value(t *jsonText, depth int) error {
	first := t.peek()
	switch {
	case first == 'n':
		if _, err := t.literal(); err != nil {
			return err
		}
		return c.null()
	case first == '{' || first == '[':
		return c.nested(t, first, depth)
	case first == '"':
		text, err := t.str()
		if err != nil {
			return err
		}
		return c.plain(text)
	}
	text, err := t.scalar(first)
	if err != nil {
		return err
	}
	return c.plain(text)
}

func (c *jsonColumn) plain(text []byte) error {
	if c.text == nil {
		return fmt.Errorf("%s, but the column is a %s", quote(text), c.b.Type())
	}
	return c.text(text)
}

func (c *jsonColumn) nested(t *jsonText, first byte, depth int) error {
	switch b := c.b.(type) {
	case *array.StructBuilder:
		if first == '{' {
			b.Append(true)
			return c.fields.read(t, depth)
		}
	case *array.MapBuilder:
		if first == '{' {
			b.Append(true)
			return t.object(depth, func(key []byte) error {
				if err := c.key(key); err != nil {
					return err
				}
				return c.elem.read(t, depth+1)
			})
		}
	case *array.ListBuilder:
		if first == '[' {
			b.Append(true)
			return t.list(depth, func() error { return c.elem.read(t, depth+1) })
		}
	default:
		if c.anything {
			text, err := t.skip(depth)
			if err != nil {
				return err
			}
			return c.text(text)
		}
	}
	found := kindObject
	if first == '[' {
		found = kindList
	}
	return fmt.Errorf("%s, but the column is a %s", found, c.b.Type())
}

package parquetfile

import (
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// node is a column, or a part of a nested one, as the reader builds it.
type node struct {
	field    arrow.Field
	levels   file.LevelInfo
	children []*node // of a struct its fields, of a list its elements, of a map its entries
	leaf     int     // Parquet column of a leaf, -1 otherwise
}

// columnsOf makes the tree of columns of a file, and its Arrow types from the Parquet types alone.
func columnsOf(path string, meta *metadata.FileMetaData) ([]*node, error) {
	var manifest *pqarrow.SchemaManifest
	err := contain(func() (err error) {
		manifest, err = pqarrow.NewSchemaManifest(meta.Schema, nil, &pqarrow.ArrowReadProperties{})
		return err
	})
	if err != nil {
		return nil, &FileError{path, -1, "", fmt.Errorf("its columns have types that Tidemark does not read: %w", err)}
	}
	nodes := make([]*node, len(manifest.Fields))
	for i := range manifest.Fields {
		if nodes[i], err = newNode(&manifest.Fields[i], meta); err != nil {
			return nil, &FileError{path, -1, manifest.Fields[i].Field.Name, err}
		}
	}
	return nodes, nil
}

func newNode(f *pqarrow.SchemaField, meta *metadata.FileMetaData) (*node, error) {
	n := &node{
		field:  arrow.Field{Name: f.Field.Name, Type: f.Field.Type, Nullable: f.Field.Nullable},
		levels: f.LevelInfo,
		leaf:   f.ColIndex,
	}
	if len(f.Children) == 0 {
		return n, n.setLeafType(meta)
	}
	n.leaf = -1
	for i := range f.Children {
		child, err := newNode(&f.Children[i], meta)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Children[i].Field.Name, err)
		}
		n.children = append(n.children, child)
	}
	switch f.Field.Type.(type) {
	case *arrow.StructType:
		fields := make([]arrow.Field, len(n.children))
		for i, child := range n.children {
			fields[i] = child.field
		}
		n.field.Type = arrow.StructOf(fields...)
	case *arrow.MapType:
		entry := n.children[0].children
		typ := arrow.MapOf(entry[0].field.Type, entry[1].field.Type)
		typ.SetItemNullable(entry[1].field.Nullable)
		n.field.Type = typ
		n.children[0].field.Type = typ.Elem()
	case *arrow.ListType:
		elem := n.children[0].field
		n.field.Type = arrow.ListOfField(arrow.Field{Name: "element", Type: elem.Type, Nullable: elem.Nullable})
	default:
		return nil, fmt.Errorf("type %s is not read", f.Field.Type)
	}
	return n, nil
}

// setLeafType settles the Arrow type of a leaf and refuses those that are not read.
func (n *node) setLeafType(meta *metadata.FileMetaData) error {
	if n.leaf < 0 || n.leaf >= meta.Schema.NumColumns() {
		return errors.New("a group without columns")
	}
	physical := meta.Schema.Column(n.leaf).PhysicalType()
	switch dt := n.field.Type.(type) {
	case *arrow.TimestampType:
		if physical == parquet.Types.Int96 { // an instant, as Spark and Impala write it
			n.field.Type = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
		}
		return nil
	case *arrow.Decimal128Type:
		if dt.Precision < 1 || dt.Scale < 0 || dt.Scale > dt.Precision {
			return fmt.Errorf("type %s is not read", dt)
		}
		return nil
	}
	switch n.field.Type.ID() {
	case arrow.BOOL, arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.UINT8, arrow.UINT16, arrow.UINT32,
		arrow.UINT64, arrow.FLOAT32, arrow.FLOAT64, arrow.DATE32, arrow.STRING, arrow.BINARY, arrow.FIXED_SIZE_BINARY:
		return nil
	}
	return fmt.Errorf("type %s is not read", n.field.Type)
}

// leaves appends the leaf columns below a node.
func (n *node) leaves(out []*node) []*node {
	if n.leaf >= 0 {
		return append(out, n)
	}
	for _, child := range n.children {
		out = child.leaves(out)
	}
	return out
}

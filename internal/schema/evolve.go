package schema

import (
	"encoding/json"
	"fmt"
	"strings"
)

// typeChangesKey is the field metadata in which the protocol records widenings, oldest first.
const typeChangesKey = "delta.typeChanges"

// ClashError says why a schema cannot evolve into, or hold, another. It shows both.
type ClashError struct {
	Table, Incoming *Schema
	Column          string
	Reason          string
}

// Code is stable, for machines.
func (*ClashError) Code() string { return "schema_clash" }

func (e *ClashError) Error() string {
	return fmt.Sprintf("column %q: %s; the table has %s, the incoming rows have %s",
		e.Column, e.Reason, e.Table.describe(), e.Incoming.describe())
}

// Evolve is the schema of a table after it has taken in rows of another schema, and whether that differs from the
// table's.
//
// Columns are matched by name, at every depth; the order of the incoming ones does not matter. The table keeps its own
// order and new columns follow in incoming order, always nullable, for older rows lack them. A type changes only by a
// widening of the Delta protocol; an incoming type that itself widens to the table's changes nothing. Whether a column
// may be null never changes: nulls in a column that has none are an error of the rows, found by [Project]. Everything
// else is a *ClashError.
func Evolve(table, incoming *Schema) (merged *Schema, changed bool, err error) {
	e := evolution{table: table, incoming: incoming}
	fields := e.fields(table.fields, incoming.fields, "")
	if e.clash != nil {
		return nil, false, e.clash
	}
	if !e.changed {
		return table, false, nil
	}
	return New(fields...), true, nil
}

// evolution is one run of Evolve: what it found so far.
type evolution struct {
	table, incoming *Schema
	changed         bool
	clash           *ClashError // the first, nil if none
}

func (e *evolution) refuse(path, reason string) {
	if e.clash == nil {
		e.clash = &ClashError{Table: e.table, Incoming: e.incoming, Column: path, Reason: reason}
	}
}

func (e *evolution) fields(table, incoming []Field, path string) []Field {
	out := make([]Field, 0, max(len(table), len(incoming)))
	for _, have := range table {
		i := fieldIndex(incoming, have.Name)
		if i < 0 {
			if !have.Nullable {
				e.refuse(path+have.Name, "the table says not null, and the incoming rows do not have it")
			}
			out = append(out, have)
			continue
		}
		out = append(out, e.field(have, incoming[i], path+have.Name))
	}
	for _, add := range incoming {
		if fieldIndex(table, add.Name) >= 0 {
			continue
		}
		for _, have := range out {
			if strings.EqualFold(have.Name, add.Name) {
				e.refuse(path+add.Name, fmt.Sprintf("it differs from column %q only by case", have.Name))
			}
		}
		add.Nullable = true
		out = append(out, add)
		e.changed = true
	}
	return out
}

// typeChange is one entry of delta.typeChanges.
type typeChange struct {
	FromType  string `json:"fromType"`
	ToType    string `json:"toType"`
	FieldPath string `json:"fieldPath,omitempty"` // to a type inside arrays and maps, as in "element.key"
}

func (e *evolution) field(have, in Field, path string) Field {
	var changes []typeChange
	have.Type = e.typ(have.Type, in.Type, path, "", &changes)
	if len(changes) == 0 {
		return have
	}
	var all []json.RawMessage
	if raw, ok := have.Metadata[typeChangesKey]; ok {
		if err := json.Unmarshal(raw, &all); err != nil {
			e.refuse(path, fmt.Sprintf("its metadata %s cannot be read: %v", typeChangesKey, err))
		}
	}
	for _, change := range changes {
		all = append(all, marshal(change))
	}
	have.Metadata = have.Metadata.with(typeChangesKey, marshal(all))
	return have
}

// typ merges two types. The path is for messages; within is the way from the field to this type, as the protocol writes
// it, and changes collects the widenings of this field.
func (e *evolution) typ(have, in Type, path, within string, changes *[]typeChange) Type {
	switch {
	case have.Kind == Struct && in.Kind == Struct:
		have.Fields = e.fields(have.Fields, in.Fields, path+".")
	case have.Kind == Array && in.Kind == Array:
		have.Elem = e.below(have.Elem, in.Elem, path, within, listElement, changes)
	case have.Kind == Map && in.Kind == Map:
		have.Key = e.below(have.Key, in.Key, path, within, "key", changes)
		have.Elem = e.below(have.Elem, in.Elem, path, within, "value", changes)
	case have.Equal(in) || widens(in, have):
	case widens(have, in):
		e.changed = true
		*changes = append(*changes, typeChange{FromType: have.String(), ToType: in.String(), FieldPath: within})
		return in
	default:
		e.refuse(path, fmt.Sprintf("%s cannot become %s, nor the other way round", have, in))
	}
	return have
}

func (e *evolution) below(have, in *Type, path, within, step string, changes *[]typeChange) *Type {
	if within != "" {
		within += "."
	}
	t := e.typ(*have, *in, path+"."+step, within+step, changes)
	return &t
}

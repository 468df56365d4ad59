package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Metadata is the metadata of a field: JSON values by key, kept as they were read.
type Metadata map[string]json.RawMessage

func (m Metadata) has(key string) bool {
	_, ok := m[key]
	return ok
}

// with is a copy of the metadata with one key set.
func (m Metadata) with(key string, value json.RawMessage) Metadata {
	out := maps.Clone(m)
	if out == nil {
		out = Metadata{}
	}
	out[key] = value
	return out
}

// depthMax bounds how deep types may nest: far above what any engine writes, far below what would exhaust the stack.
const depthMax = 100

type jsonStruct struct {
	Type   string      `json:"type"`
	Fields []jsonField `json:"fields"`
}

type jsonField struct {
	Name     string          `json:"name"`
	Type     json.RawMessage `json:"type"`
	Nullable bool            `json:"nullable"`
	Metadata Metadata        `json:"metadata"`
}

type jsonArray struct {
	Type         string          `json:"type"`
	ElementType  json.RawMessage `json:"elementType"`
	ContainsNull bool            `json:"containsNull"`
}

type jsonMap struct {
	Type              string          `json:"type"`
	KeyType           json.RawMessage `json:"keyType"`
	ValueType         json.RawMessage `json:"valueType"`
	ValueContainsNull bool            `json:"valueContainsNull"`
}

// Parse reads Delta's schema JSON (metaData.schemaString).
func Parse(schemaString string) (*Schema, error) {
	t, err := parseType(json.RawMessage(schemaString), depthMax)
	if err != nil {
		return nil, fmt.Errorf("table schema: %w", err)
	}
	if t.Kind != Struct {
		return nil, fmt.Errorf("table schema: a struct is wanted, this is %s", t)
	}
	return New(t.Fields...), nil
}

func parseType(raw json.RawMessage, depth int) (Type, error) {
	if depth == 0 {
		return Type{}, fmt.Errorf("types nest deeper than %d", depthMax)
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) > 0 && raw[0] == '"' {
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			return Type{}, err
		}
		return parsePrimitive(name)
	}
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return Type{}, err
	}
	switch Kind(head.Type) {
	case Struct:
		return parseStruct(raw, depth)
	case Array:
		return parseArray(raw, depth)
	case Map:
		return parseMap(raw, depth)
	}
	return Type{}, fmt.Errorf("unknown type %q", head.Type)
}

func parsePrimitive(name string) (Type, error) {
	if _, ok := arrowPrimitives[Kind(name)]; ok {
		return Type{Kind: Kind(name)}, nil
	}
	if name == "decimal" { // the default of the protocol
		return Type{Kind: Decimal, Precision: 10}, nil
	}
	t := Type{Kind: Decimal}
	if _, err := fmt.Sscanf(strings.ReplaceAll(name, " ", ""), "decimal(%d,%d)", &t.Precision, &t.Scale); err != nil {
		return Type{}, fmt.Errorf("unknown type %q: this table needs a newer Tidemark, or a column of another type", name)
	}
	if t.Precision < 1 || t.Precision > decimalPrecisionMax || t.Scale < 0 || t.Scale > t.Precision {
		return Type{}, fmt.Errorf("type %q: precision is 1 to %d, scale 0 to the precision", name, decimalPrecisionMax)
	}
	return t, nil
}

func parseStruct(raw json.RawMessage, depth int) (Type, error) {
	var in jsonStruct
	if err := json.Unmarshal(raw, &in); err != nil {
		return Type{}, err
	}
	t := Type{Kind: Struct, Fields: make([]Field, len(in.Fields))}
	for i, f := range in.Fields {
		below, err := parseType(f.Type, depth-1)
		if err != nil {
			return Type{}, fmt.Errorf("field %q: %w", f.Name, err)
		}
		t.Fields[i] = Field{Name: f.Name, Type: below, Nullable: f.Nullable, Metadata: f.Metadata}
	}
	return t, nil
}

func parseArray(raw json.RawMessage, depth int) (Type, error) {
	var in jsonArray
	if err := json.Unmarshal(raw, &in); err != nil {
		return Type{}, err
	}
	elem, err := parseType(in.ElementType, depth-1)
	if err != nil {
		return Type{}, fmt.Errorf("element: %w", err)
	}
	return Type{Kind: Array, Elem: &elem, ElemNullable: in.ContainsNull}, nil
}

func parseMap(raw json.RawMessage, depth int) (Type, error) {
	var in jsonMap
	if err := json.Unmarshal(raw, &in); err != nil {
		return Type{}, err
	}
	key, err := parseType(in.KeyType, depth-1)
	if err != nil {
		return Type{}, fmt.Errorf("key: %w", err)
	}
	value, err := parseType(in.ValueType, depth-1)
	if err != nil {
		return Type{}, fmt.Errorf("value: %w", err)
	}
	return Type{Kind: Map, Key: &key, Elem: &value, ElemNullable: in.ValueContainsNull}, nil
}

// String is Delta's schema JSON.
func (s *Schema) String() string {
	return string(Type{Kind: Struct, Fields: s.fields}.json())
}

func (t Type) json() json.RawMessage {
	switch t.Kind {
	case Struct:
		out := jsonStruct{Type: string(Struct), Fields: make([]jsonField, len(t.Fields))}
		for i, f := range t.Fields {
			metadata := f.Metadata
			if metadata == nil {
				metadata = Metadata{}
			}
			out.Fields[i] = jsonField{Name: f.Name, Type: f.Type.json(), Nullable: f.Nullable, Metadata: metadata}
		}
		return marshal(out)
	case Array:
		return marshal(jsonArray{string(Array), t.Elem.json(), t.ElemNullable})
	case Map:
		return marshal(jsonMap{string(Map), t.Key.json(), t.Elem.json(), t.ElemNullable})
	}
	return marshal(t.String())
}

// marshal encodes values made of strings, booleans and valid raw JSON, which cannot fail.
func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("schema: encoding a schema: " + err.Error())
	}
	return bytes.TrimSpace(b.Bytes())
}

package observe

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Bounds of a page.
const (
	LimitDefault = 50
	LimitMax     = 500
	searchMax    = 200 // bytes; no name is longer in any sensible deployment
)

// Query asks for one page of a list.
type Query struct {
	Search string // part of a name; letters of either case
	Sort   string // one of the list's orders; "" is its first
	Desc   bool
	Limit  int    // 0 is LimitDefault
	Cursor string // from an earlier page of the same query, or ""
}

// QueryError says what is wrong with a query.
type QueryError struct {
	Field  string
	Reason string
}

// Code is the error's stable code.
func (e *QueryError) Code() string { return "bad_query" }

func (e *QueryError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// Page is one page of a list.
type Page[T any] struct {
	Items []T    `json:"items"`
	Total int    `json:"total"`          // that match, on all pages
	First int    `json:"first"`          // place of the first item among them, from 0
	Next  string `json:"next,omitempty"` // cursor of the page after this one
	Prev  string `json:"prev,omitempty"` // cursor of the page before this one
}

// cursor is a place between two rows of an order: just after a row, or just before one.
type cursor struct {
	Sort   string `json:"s"`
	Desc   bool   `json:"d,omitempty"`
	Before bool   `json:"b,omitempty"`
	Number int64  `json:"n,omitempty"`
	Text   string `json:"t,omitempty"`
	Name   string `json:"k"`
}

func (c cursor) String() string {
	b, err := json.Marshal(c)
	if err != nil {
		return "" // strings and numbers always encode
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(text string) (cursor, error) {
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return c, &QueryError{"cursor", "it is not one that this API gave out; leave it away to begin with the first page"}
	}
	return c, nil
}

// key is a row's place in an order: by number, then text, then name, which no two rows share.
type key struct {
	number int64
	text   string
	name   string
}

func (k key) compare(o key, desc bool) int {
	c := 0
	switch {
	case k.number != o.number && k.number < o.number:
		c = -1
	case k.number != o.number:
		c = 1
	default:
		c = strings.Compare(k.text, o.text)
	}
	if desc {
		c = -c
	}
	if c == 0 {
		c = strings.Compare(k.name, o.name) // names always ascend
	}
	return c
}

// order is one way to sort rows.
type order[T any] struct {
	name string
	of   func(*T) (int64, string)
}

// paged cuts a page out of all rows that match.
func paged[T any](rows []T, q Query, orders []order[T], name func(*T) string) (Page[T], error) {
	by, err := orderOf(q, orders)
	if err != nil {
		return Page[T]{}, err
	}
	limit := q.Limit
	switch {
	case limit == 0:
		limit = LimitDefault
	case limit < 1 || limit > LimitMax:
		return Page[T]{}, &QueryError{"limit", fmt.Sprintf("must be from 1 to %d", LimitMax)}
	}
	type keyed struct {
		key key
		row *T
	}
	sorted := make([]keyed, len(rows))
	for i := range rows {
		number, text := by.of(&rows[i])
		sorted[i] = keyed{key{number, text, name(&rows[i])}, &rows[i]}
	}
	slices.SortFunc(sorted, func(a, b keyed) int { return a.key.compare(b.key, q.Desc) })
	from := 0
	if q.Cursor != "" {
		c, err := parseCursor(q.Cursor)
		if err != nil {
			return Page[T]{}, err
		}
		if c.Sort != by.name || c.Desc != q.Desc {
			return Page[T]{}, &QueryError{"cursor", "it belongs to another order; leave it away to begin with the first page"}
		}
		at := key{c.Number, c.Text, c.Name}
		i, found := slices.BinarySearchFunc(sorted, at, func(k keyed, at key) int { return k.key.compare(at, q.Desc) })
		switch {
		case c.Before:
			from = max(0, i-limit)
		case found:
			from = i + 1
		default:
			from = i
		}
	}
	from = min(from, len(sorted))
	to := min(from+limit, len(sorted))
	page := Page[T]{Items: make([]T, 0, to-from), Total: len(sorted), First: from}
	for _, k := range sorted[from:to] {
		page.Items = append(page.Items, *k.row)
	}
	place := func(k key, before bool) string {
		return cursor{Sort: by.name, Desc: q.Desc, Before: before, Number: k.number, Text: k.text, Name: k.name}.String()
	}
	if to < len(sorted) {
		page.Next = place(sorted[to-1].key, false)
	}
	if from > 0 && from < len(sorted) {
		page.Prev = place(sorted[from].key, true)
	}
	return page, nil
}

func orderOf[T any](q Query, orders []order[T]) (order[T], error) {
	if len(q.Search) > searchMax {
		return order[T]{}, &QueryError{"search", fmt.Sprintf("longer than %d bytes", searchMax)}
	}
	if q.Sort == "" {
		return orders[0], nil
	}
	names := make([]string, len(orders))
	for i, o := range orders {
		if o.name == q.Sort {
			return o, nil
		}
		names[i] = o.name
	}
	return order[T]{}, &QueryError{"sort", "no such order; known are " + strings.Join(names, ", ")}
}

// matches says whether a name contains what is searched for.
func (q Query) matches(name string) bool {
	return q.Search == "" || strings.Contains(strings.ToLower(name), strings.ToLower(q.Search))
}

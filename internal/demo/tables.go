package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/objstore"
	"tidemark/internal/schema"
	"tidemark/internal/table"
)

// The tables of the demo lie in a folder of their own.
const (
	EventTable  = "demo/events"
	StateTable  = "demo/orders"
	tablePrefix = "demo/"
)

// policy makes the demo's tables merge within seconds: its generations are small and people are watching.
var policy = map[string]string{
	"tidemark.policy.min_generations": "4",
	"tidemark.policy.max_age":         "2s",
	"tidemark.policy.max_wait":        "5s",
}

// newTable makes one of the demo's tables, empty: the life of an earlier demo is dropped, since the expectation is about
// this one. A table of that name that the demo did not make is refused.
func newTable(ctx context.Context, s objstore.Store, d table.Deps, name string, columns *arrow.Schema, o table.CreateOptions) (*table.Table, error) {
	var err error
	if o.Schema, err = schema.FromArrow(columns); err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	o.Properties = map[string]string{madeBy: "true"}
	for k, v := range policy {
		o.Properties[k] = v
	}
	old, err := table.Load(ctx, s, name, d)
	switch {
	case errors.Is(err, table.ErrUnknownTable), errors.Is(err, table.ErrDropped):
	case err != nil:
		return nil, err
	case old.Snapshot.Metadata.Configuration[madeBy] == "":
		return nil, fmt.Errorf("table %s was not made by the demo, which would drop it; use another --root", name)
	default:
		if err := table.Drop(ctx, s, name, d); err != nil {
			return nil, err
		}
	}
	return table.Create(ctx, s, name, o, d)
}

// madeBy is the property by which the demo knows its own tables.
const madeBy = "demo.generated"

// replayTable names the table of replayed files after the first of them.
func replayTable(file string) string {
	base := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, base)
	if name = strings.TrimLeft(name, "_"); name == "" {
		name = "data"
	}
	return tablePrefix + name
}

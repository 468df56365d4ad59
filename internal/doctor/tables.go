package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/master"
	"tidemark/internal/schedule"
	"tidemark/internal/table"
)

const (
	// tablesMax bounds the tables whose logs are looked at, a few requests each; masters look at all of them anyway.
	tablesMax = 256
	// namesMax bounds the names in one finding.
	namesMax = 10
)

// tables looks for tables that are paused, or that cannot be merged as they are.
func (d *doctor) tables(ctx context.Context) {
	var names, paused []string
	err := d.keys(ctx, d.Keys.Prefix+"/tables/", func(kv *mvccpb.KeyValue) {
		var r master.TableRecord
		_, name, err := d.Keys.ParseTable(string(kv.Key))
		if err != nil || json.Unmarshal(kv.Value, &r) != nil {
			return
		}
		names = append(names, name)
		if r.Paused() {
			paused = append(paused, name)
		}
	})
	if err != nil {
		d.unread("tables", err)
		return
	}
	if len(paused) > 0 {
		d.note("tables", "`tidemark resume` them when they are to go on.", "%d of %d are paused: %s", len(paused), len(names), some(paused))
	}
	looked, bad := 0, 0
	for _, name := range names[:min(len(names), tablesMax)] {
		if ctx.Err() != nil {
			break
		}
		looked++
		if d.table(ctx, name) {
			bad++
		}
	}
	if bad == 0 && len(paused) == 0 {
		d.ok("tables", "%d known, %d looked at", len(names), looked)
	}
}

// table looks at one table and says whether something is wrong with it.
func (d *doctor) table(ctx context.Context, name string) (bad bool) {
	t, err := table.Load(ctx, d.Store, name, table.Deps{Clock: d.Clock, Random: d.Random})
	switch {
	case errors.Is(err, table.ErrDropped), errors.Is(err, table.ErrUnknownTable), ctx.Err() != nil:
		return false // its owner forgets it with the next scan; or there was no time
	case err == nil:
		err = t.Mergeable()
	}
	if err != nil {
		d.wrong("table "+name, "Do what the message says. Until then nothing of it is queued; writers go on.", "cannot be merged: %v", err)
		return true
	}
	if _, err := schedule.DefaultPolicy().With(t.Policy); err != nil {
		d.wrong("table "+name, "`tidemark policy set` a value that can be used, or unset it; meanwhile the default holds.", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return true
	}
	return false
}

// some is the first few names of a list.
func some(names []string) string {
	if len(names) > namesMax {
		return strings.Join(names[:namesMax], ", ") + " …"
	}
	return strings.Join(names, ", ")
}

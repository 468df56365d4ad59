package doctor

import (
	"maps"
	"testing"

	"tidemark/internal/deltalog"
	"tidemark/internal/etcd"
	"tidemark/internal/schema"
	"tidemark/internal/table"
)

func TestTablesThatArePausedOrCannotBeMergedAreFound(t *testing.T) {
	r := newRig(t)
	deps := table.Deps{Clock: r.Clock, Random: r.Random}
	columns := schema.New(schema.Field{Name: "id", Type: schema.Type{Kind: schema.Long}, Nullable: true})
	tbl, err := table.Create(t.Context(), r.Store, "orders", table.CreateOptions{Schema: columns}, deps)
	if err != nil {
		t.Fatal(err)
	}
	record := r.Keys.Table(etcd.SlotOf("orders", slots), "orders")
	r.put(record, map[string]any{"v": 1, "table_id": tbl.ID})
	r.put(r.Keys.Table(1, "gone"), map[string]any{"v": 1})
	r.finds("tables", OK, "2 known")
	r.put(record, map[string]any{"v": 1, "table_id": tbl.ID, "state": "paused"})
	r.finds("tables", Note, "1 of 2", "orders", "tidemark resume")
	r.put(record, map[string]any{"v": 1, "table_id": tbl.ID})

	set := func(name, value string) {
		t.Helper()
		now, err := table.Load(t.Context(), r.Store, "orders", deps)
		if err != nil {
			t.Fatal(err)
		}
		m := now.Snapshot.Metadata
		m.Configuration = maps.Clone(m.Configuration)
		m.Configuration[name] = value
		in := deltalog.Intent{TableID: now.ID, Read: now.Snapshot, Metadata: &m, Info: deltalog.CommitInfo{Operation: "SET TBLPROPERTIES"}}
		if _, err := now.Log.Commit(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	set("tidemark.policy.max_wait", "whenever")
	r.finds("table orders", Wrong, "whenever")
	set(deltalog.PropertyMode, "upsert")
	r.finds("table orders", Wrong, "cannot be merged")
}

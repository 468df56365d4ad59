package etcd

import "testing"

// Whatever stands under the cluster's key, it is a cluster with slots or an error.
func FuzzParseCluster(f *testing.F) {
	f.Add([]byte(`{"v":1,"name":"default","id":"x","root":"s3://b/p","slots":64}`))
	f.Add([]byte(`{"v":2,"slots":64}`))
	f.Add([]byte(`{"v":1,"slots":-1}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		c, err := ParseCluster(value)
		if err != nil {
			return
		}
		if c.Slots < 1 {
			t.Fatalf("%s was accepted with %d slots", value, c.Slots)
		}
		if slot := SlotOf("t", c.Slots); slot < 0 || slot >= c.Slots {
			t.Fatalf("slot %d of %d", slot, c.Slots)
		}
	})
}

// A key is read only as what would be written under it, so two keys can never mean one record.
func FuzzEveryParserRefusesWhatItWouldNotWrite(f *testing.F) {
	k := KeysOf("c")
	for _, key := range []string{
		k.Master("m"), k.Executor("x"), k.Drain("x"), k.Progress("e"), k.SlotEpoch(3), k.Table(5, "a/b"),
		k.Requests(5, "a b"), k.Outcome("t", LogTurn), k.Outcome("a/b", 15),
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		named := map[string]struct {
			parse func(string) (string, error)
			write func(string) string
		}{
			"master": {k.ParseMaster, k.Master}, "executor": {k.ParseExecutor, k.Executor},
			"drain": {k.ParseDrain, k.Drain}, "progress": {k.ParseProgress, k.Progress},
		}
		for what, c := range named {
			if name, err := c.parse(key); err == nil && c.write(name) != key {
				t.Fatalf("%s key %q is not canonical", what, key)
			}
		}
		if slot, err := k.ParseSlotEpoch(key); err == nil && k.SlotEpoch(slot) != key {
			t.Fatalf("slot epoch key %q is not canonical", key)
		}
		if slot, table, err := k.ParseTable(key); err == nil && k.Table(slot, table) != key {
			t.Fatalf("table key %q is not canonical", key)
		}
		if slot, table, err := k.ParseRequests(key); err == nil && k.Requests(slot, table) != key {
			t.Fatalf("requests key %q is not canonical", key)
		}
		if table, turn, err := k.ParseOutcome(key); err == nil && k.Outcome(table, turn) != key {
			t.Fatalf("outcome key %q is not canonical", key)
		}
	})
}

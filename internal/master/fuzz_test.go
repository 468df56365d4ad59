package master

import (
	"testing"

	"tidemark/internal/etcd"
	"tidemark/internal/schedule"
	"tidemark/internal/schedule/readyqueue"
)

// Whatever stands in etcd, written by another version or by nobody of ours, is noted or counted as strange; what follows
// from it can be decided and shown, and it goes again when its key goes.
func FuzzAnyValueInEtcdIsNotedOrCounted(f *testing.F) {
	f.Add(`{"v":1,"execution":"x","executor":"e","token":"t","turns":"ffff","started_ms":5,"unit":{"v":1,"kind":"merge","table":"t","groups":"ffff"}}`,
		`{"v":1,"execution":"x","kind":"merge","result":"failed","ended_ms":9,"shards":{"a":{"code":"generation_damaged","class":"data","generation":3,"count":1,"failed_ms":9}}}`,
		`{"v":1,"table_id":"i","incarnation":2,"mode":"append","state":"paused","policy":{"min_generations":"4"},"checkpoint":3,"log_version":9}`,
		`{"v":1,"seq":7,"stage":"read","rows":5,"bytes":6}`, `{"v":1,"kind":"merge","priority":"low"}`, `{"v":1,"policy":{"max_age":"5s"}}`)
	f.Add(`{}`, `{"v":2}`, `[]`, `null`, `0`, ``)
	f.Fuzz(func(t *testing.T, turn, outcome, table, progress, request, policy string) {
		m, _ := bookOf(false)
		b, nowMS := m.book, int64(1_000_000)
		unit := schedule.Unit{V: 1, Kind: schedule.KindMerge, Table: "t", Groups: schedule.Groups(etcd.AllGroups), Order: "5"}
		values := []struct{ key, value string }{
			{m.keys.Turn("t", 3), turn}, {m.keys.Turn("t", etcd.LogTurn), turn}, {m.keys.Outcome("t", 3), outcome}, {m.keys.Outcome("t", etcd.LogTurn), outcome},
			{m.keys.Table(0, "t"), table}, {m.keys.Progress("x"), progress}, {m.keys.Requests(0, "t"), request}, {m.keys.DefaultPolicy(), policy},
			{readyqueue.Key(m.keys, unit), turn},
		}
		for _, live := range []bool{false, true} {
			for i, v := range values {
				before := b.strange
				b.put(v.key, []byte(v.value), int64(i)+10, nowMS, live)
				if b.strange > before+1 {
					t.Errorf("%s was counted %d times", v.key, b.strange-before)
				}
			}
			for _, e := range b.tables {
				if e.record != nil {
					_ = schedule.Diff(e.units(), schedule.Decide(e.input(nowMS)).Units)
				}
				_ = e.status()
			}
		}
		for _, v := range values {
			b.delete(v.key)
		}
		if e := b.tables["t"]; e != nil && (e.record != nil || e.request != nil || e.hasOutcomes() || len(e.ready) > 0) {
			t.Errorf("something stays of what is gone: %+v", e)
		}
	})
}

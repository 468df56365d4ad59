package master

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tidemark/internal/etcd"
	"tidemark/internal/scan"
	"tidemark/internal/schedule"
)

// TestATableThatIsHardlyUsedIsCleanedOnceADay: nothing of it is trimmed by count, but its log, its old manifests and what
// crashed executions left must go too. A cleanup that finds nothing counts as one.
func TestATableThatIsHardlyUsedIsCleanedOnceADay(t *testing.T) {
	for _, result := range []schedule.Result{schedule.ResultMerged, schedule.ResultNothing} {
		t.Run(string(result), func(t *testing.T) {
			r := newRig(t)
			tbl := r.create("t", nil)
			slot := etcd.SlotOf("t", testSlots)
			old := recordOf(scan.Report{Table: tbl}, time.Now().Add(-25*time.Hour).UnixMilli())
			r.putJSON(r.keys.Table(slot, "t"), old)
			r.run(r.config("m1"))
			r.until("a cleanup", func(keys map[string]string) bool {
				units := r.units(keys, "t")
				return len(units) == 1 && units[0].Kind == schedule.KindCleanup && strings.Contains(units[0].Note, "since the last cleanup")
			})
			outcome := schedule.Outcome{V: 1, Execution: "e1", Kind: schedule.KindCleanup, Result: result, EndedMS: time.Now().UnixMilli()}
			r.putJSON(r.keys.Outcome("t", etcd.LogTurn), outcome)
			r.putJSON(r.keys.Requests(slot, "t"), schedule.Request{V: 1, ScanOnly: true})
			r.until("no cleanup, and its time in the record", func(keys map[string]string) bool {
				var now TableRecord
				return len(r.units(keys, "t")) == 0 && json.Unmarshal([]byte(keys[r.keys.Table(slot, "t")]), &now) == nil && now.CleanedMS > old.CleanedMS
			})
		})
	}
}

func (r *rig) putJSON(key string, value any) {
	r.t.Helper()
	body, err := json.Marshal(value)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.Put(r.t.Context(), key, string(body)); err != nil {
		r.t.Fatal(err)
	}
}

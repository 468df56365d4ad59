package master

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tidemark/internal/deltalog"
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

// TestSmallFilesBringACompactionAndItsReleaseAnotherLook: the facts are a scan's; once it is released they count no more until
// the next one, which comes at once.
func TestSmallFilesBringACompactionAndItsReleaseAnotherLook(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", map[string]string{"tidemark.policy.compact_files": "3"})
	in := deltalog.Intent{TableID: tbl.ID, Read: tbl.Snapshot, Info: deltalog.CommitInfo{Operation: "WRITE", ExecutionID: "f"}}
	for i := range 4 {
		in.Adds = append(in.Adds, deltalog.Add{Path: fmt.Sprintf("part-%d.parquet", i), Size: 1 << 20, DataChange: true})
	}
	written, err := tbl.Log.Commit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	r.run(r.config("m1"))
	keys := r.until("a compaction", func(keys map[string]string) bool {
		units := r.units(keys, "t")
		return len(units) == 1 && units[0].Kind == schedule.KindCompact
	})
	unit := r.units(keys, "t")[0]
	if unit.Note != "4 small files of 4194304 bytes would become 1" || unit.Groups != schedule.Log || unit.Class != schedule.Maintenance {
		t.Errorf("%+v", unit)
	}
	r.claim(unit, "e1")
	in = deltalog.Intent{TableID: tbl.ID, Read: written.Snapshot, Info: deltalog.CommitInfo{Operation: "OPTIMIZE", ExecutionID: "e1"}}
	for f := range written.Snapshot.Files() {
		in.Removes = append(in.Removes, deltalog.Remove{Path: f.Path})
	}
	in.Adds = []deltalog.Add{{Path: "part-joined.parquet", Size: 4 << 20}}
	if _, err := tbl.Log.Commit(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	r.putJSON(r.keys.Outcome("t", etcd.LogTurn), schedule.Outcome{V: 1, Execution: "e1", Kind: schedule.KindCompact,
		Result: schedule.ResultMerged, EndedMS: time.Now().UnixMilli(), LogVersion: written.Version + 1})
	if _, err := r.client.Delete(t.Context(), r.keys.Turn("t", etcd.LogTurn)); err != nil {
		t.Fatal(err)
	}
	r.until("the record of the new version, and nothing to do", func(keys map[string]string) bool {
		var now TableRecord
		return json.Unmarshal([]byte(keys[r.keys.Table(etcd.SlotOf("t", testSlots), "t")]), &now) == nil &&
			now.LogVersion == written.Version+1 && len(r.units(keys, "t")) == 0
	})
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

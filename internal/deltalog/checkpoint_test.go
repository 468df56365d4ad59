package deltalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
)

func TestACheckpointHoldsTheWholeTable(t *testing.T) {
	c := clock.System()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSnapshot(rt)
		store := objstore.NewMemory(c)
		var body bytes.Buffer
		if err := encodeCheckpoint(&body, s); err != nil {
			rt.Fatal(err)
		}
		key := "t/_delta_log/" + checkpointName(s.Version)
		if r := store.PutIfAbsent(t.Context(), key, body.Bytes()); r.Err != nil {
			rt.Fatal(r.Err)
		}
		info := objstore.Info{Key: key, Size: int64(body.Len())}
		got, err := open(store, c).readCheckpoint(t.Context(), checkpointFiles{s.Version, []objstore.Info{info}})
		if err != nil {
			rt.Fatal(err)
		}
		if g, w := dump(got), dump(s); g != w || !got.Protocol.Equal(s.Protocol) || !got.Metadata.Equal(s.Metadata) || got.Bytes() != s.Bytes() {
			rt.Fatalf("got\n%s%+v\nwant\n%s%+v", g, got.Metadata, w, s.Metadata)
		}
		if (got.Protocol.WriterFeatures == nil) != (s.Protocol.WriterFeatures == nil) || (got.Protocol.ReaderFeatures == nil) != (s.Protocol.ReaderFeatures == nil) {
			rt.Fatalf("feature lists %+v, want %+v", got.Protocol, s.Protocol)
		}
	})
}

func drawSnapshot(t *rapid.T) *Snapshot {
	text := rapid.StringMatching(`[a-z %é/=:]{0,8}`)
	pairs := rapid.MapOfN(rapid.StringMatching(`[a-z.]{1,6}`), text, 0, 3)
	s := &Snapshot{
		table: "t", Version: rapid.Int64Range(0, 1<<40).Draw(t, "version"),
		Protocol: NewProtocol(rapid.Bool().Draw(t, "upsert"), rapid.Bool().Draw(t, "ntz")),
		Metadata: Metadata{ID: "T", Name: text.Draw(t, "name"), SchemaString: schemaPlain, CreatedTime: rapid.Int64Range(0, 9).Draw(t, "created"),
			Configuration: pairs.Draw(t, "configuration")}.normal(),
	}
	for i := range rapid.IntRange(0, 20).Draw(t, "files") {
		s.setFile(newFile(Add{
			Path: fmt.Sprintf("f%d%s", i, text.Draw(t, "path")), Size: rapid.Int64Range(0, 1<<50).Draw(t, "size"), ModificationTime: int64(i),
			Stats: rapid.SampledFrom([]string{"", `{"numRecords":3}`}).Draw(t, "stats"), Tags: pairs.Draw(t, "tags"), PartitionValues: pairs.Draw(t, "partitions"),
		}))
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "tombstones") {
		s.setTombstone(fmt.Sprint("gone", i), tombstone{at: rapid.Int64Range(0, 9).Draw(t, "at"), size: 3})
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "txns") {
		s.setTxn(Txn{AppID: AppID("T", fmt.Sprint("s", i)), Version: rapid.Int64().Draw(t, "mark"), LastUpdated: int64(i)})
	}
	return s
}

func TestACheckpointOfManyBatchesIsWhole(t *testing.T) {
	c := clock.System()
	store := objstore.NewMemory(c)
	l, s := newLog(t, store, c)
	for i := range 3*checkpointBatch + 5 {
		s.setFile(newFile(Add{Path: fmt.Sprintf("part-%06d", i), Size: 1, ModificationTime: 1, Stats: fmt.Sprintf(`{"numRecords":%d}`, i)}))
	}
	if err := l.Checkpoint(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	got, err := l.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equalState(t, got, s)
	var hint lastCheckpointJSON
	body, _, err := store.Get(t.Context(), "t/_delta_log/_last_checkpoint")
	if err != nil || json.Unmarshal(body, &hint) != nil || hint.NumOfAddFiles != int64(s.FileCount()) || hint.Size != hint.NumOfAddFiles+2 || hint.SizeInBytes == 0 || hint.Version != 0 {
		t.Errorf("_last_checkpoint is %s, %v", body, err)
	}
}

func TestTombstonesStayUntilTheirRetentionHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		store := objstore.NewMemory(c)
		l, s := newLogWith(t, store, c, NewProtocol(false, false), map[string]string{"delta.deletedFileRetentionDuration": "interval 2 hours"})
		s = grow(t, l, s, 4)
		for i := range 2 {
			res, err := l.Commit(t.Context(), Intent{TableID: "T", Read: s, Removes: []Remove{{Path: fmt.Sprintf("part-grow%d-%d.parquet", i, i+1), DataChange: true}}})
			if err != nil {
				t.Fatal(err)
			}
			s = res.Snapshot
			time.Sleep(90 * time.Minute)
		}
		// The first was removed three hours ago, the second one and a half.
		if err := l.Checkpoint(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		deleteFiles(t, store, commitName(5))
		got, err := l.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for r := range got.Tombstones() {
			paths = append(paths, r.Path)
		}
		if !slices.Equal(paths, []string{"part-grow1-2.parquet"}) {
			t.Errorf("tombstones %v", paths)
		}
	})
}

func TestACheckpointThatIsThereIsLeftAlone(t *testing.T) {
	c := clock.System()
	store := objstore.NewMemory(c)
	l, s := newLog(t, store, c)
	two := grow(t, l, s, 2)
	if err := l.Checkpoint(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	_, before, err := store.Get(t.Context(), "t/_delta_log/"+checkpointName(2))
	if err != nil {
		t.Fatal(err)
	}
	// Somebody who died before pointing at it is finished for; nobody is pointed back.
	deleteFiles(t, store, "_last_checkpoint")
	if err := l.Checkpoint(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	five := grow(t, l, two, 5)
	if err := errors.Join(l.Checkpoint(t.Context(), five), l.Checkpoint(t.Context(), two)); err != nil {
		t.Fatal(err)
	}
	if v := l.lastCheckpoint(t.Context()); v != 5 {
		t.Errorf("_last_checkpoint names %d", v)
	}
	if _, after, err := store.Get(t.Context(), "t/_delta_log/"+checkpointName(2)); err != nil || after.ETag != before.ETag {
		t.Errorf("the checkpoint was written again: %v", err)
	}
	if got, err := l.Refresh(t.Context(), five); err != nil || got.Checkpoint != 5 {
		t.Errorf("checkpoint %d, %v", got.Checkpoint, err)
	}
}

func TestACheckpointThatFailsLeavesNothingThatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		for _, fault := range []string{
			"create *: fail before send", "write *.parquet #1: fail before send", "complete *: fail before send", "complete *: unknown, never lands",
			"head *: fail before send", "put-if-absent *_last_checkpoint: refuse", "get *_last_checkpoint: fail before send",
		} {
			memory := objstore.NewMemory(c)
			clean, s := newLog(t, memory, c)
			want := grow(t, clean, s, 3)
			faulty, err := faultstore.Wrap(memory, c, fault)
			if err != nil {
				t.Fatal(err)
			}
			if err := open(faulty, c).Checkpoint(t.Context(), want); err == nil {
				t.Errorf("%s: no error", fault)
			}
			if unused := faulty.Unused(); len(unused) > 0 {
				t.Errorf("never happened: %v", unused)
			}
			got, err := clean.Snapshot(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", fault, err)
			}
			equalState(t, got, want)
			if err := clean.Checkpoint(t.Context(), want); err != nil {
				t.Errorf("%s: again: %v", fault, err)
			}
		}
	})
}

func names(t *testing.T, s objstore.Store) []string {
	t.Helper()
	var out []string
	for info, err := range objstore.ListAll(t.Context(), s, "t/_delta_log/") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.TrimLeft(strings.TrimPrefix(info.Key, "t/_delta_log/"), "0"))
	}
	return out
}

func TestCleaningKeepsWhatSnapshotsWithinRetentionNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		store := objstore.NewMemory(c)
		l, s := newLogWith(t, store, c, NewProtocol(false, false), map[string]string{"delta.logRetentionDuration": "interval 2 hours"})
		expect := func(when string, s *Snapshot, deleted int, left ...string) {
			t.Helper()
			n, err := l.CleanLog(t.Context(), s)
			if got := names(t, store); err != nil || n != deleted || !slices.Equal(got, left) {
				t.Fatalf("%s: deleted %d, %v, left %v; want %d, %v", when, n, err, got, deleted, left)
			}
		}
		s = grow(t, l, s, 2)
		expect("no checkpoint", s, 0, ".json", "1.json", "2.json")
		if err := l.Checkpoint(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		foreignCRC := store.PutIfAbsent(t.Context(), "t/_delta_log/00000000000000000001.crc", []byte("{}"))
		if foreignCRC.Err != nil {
			t.Fatal(foreignCRC.Err)
		}
		expect("young", s, 0, ".json", "1.crc", "1.json", "2.checkpoint.parquet", "2.json", "_last_checkpoint")
		time.Sleep(time.Hour)
		s = grow(t, l, s, 4)
		if err := l.Checkpoint(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Minute)
		s, err := l.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s = grow(t, l, s, 5)
		// 0 to 2 are two and a half hours old, 3 and 4 one and a half. Snapshots of 2 and later can still be made.
		expect("the first ones are old", s, 3, "2.checkpoint.parquet", "2.json", "3.json", "4.checkpoint.parquet", "4.json", "5.json", "_last_checkpoint")
		time.Sleep(90 * time.Minute)
		if s, err = l.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := s
		expect("all but the last are old", s, 3, "4.checkpoint.parquet", "4.json", "5.json", "_last_checkpoint")
		time.Sleep(24 * time.Hour)
		if s, err = l.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("all are old, and the newest checkpoint is needed", s, 0, "4.checkpoint.parquet", "4.json", "5.json", "_last_checkpoint")
		equalState(t, s, want)
	})
}

func TestCleaningStopsAtWhatOthersMayNeed(t *testing.T) {
	for name, c := range map[string]struct {
		property string // further property name=value
		damage   func(t *testing.T, s objstore.Store)
		fails    bool
	}{
		"the checkpoint is damaged": {damage: func(t *testing.T, s objstore.Store) {
			overwrite(t, s, "t/_delta_log/"+checkpointName(4), []byte("PAR1 nonsense PAR1"))
			time.Sleep(3 * time.Hour)
		}, fails: true},
		"cleaning is turned off": {property: "delta.enableExpiredLogCleanup=false"},
		"the hint names an older checkpoint that is gone": {damage: func(t *testing.T, s objstore.Store) {
			overwrite(t, s, "t/_delta_log/_last_checkpoint", []byte(`{"version":1}`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clk := clock.System()
				store := objstore.NewMemory(clk)
				properties := map[string]string{"delta.logRetentionDuration": "interval 1 hour"}
				if k, v, ok := strings.Cut(c.property, "="); ok {
					properties[k] = v
				}
				l, s := newLogWith(t, store, clk, NewProtocol(false, false), properties)
				s = grow(t, l, s, 4)
				if err := l.Checkpoint(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Hour)
				if c.damage != nil {
					c.damage(t, store)
				}
				before := names(t, store)
				n, err := l.CleanLog(t.Context(), s)
				if n != 0 || (err != nil) != c.fails || !slices.Equal(names(t, store), before) {
					t.Errorf("deleted %d, %v", n, err)
				}
			})
		})
	}
}

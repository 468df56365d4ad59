package deltalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
	"tidemark/internal/random"
)

func open(s objstore.Store, c clock.Clock) *Log {
	return Open(s, "t", Options{Clock: c, Random: random.Seeded(5)})
}

func deleteFiles(t *testing.T, s objstore.Store, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.Delete(context.Background(), "t/_delta_log/"+name); err != nil {
			t.Fatal(err)
		}
	}
}

// overwrite replaces an object whatever it is.
func overwrite(t *testing.T, s objstore.Store, key string, body []byte) {
	t.Helper()
	if err := s.Delete(context.Background(), key); err != nil {
		t.Fatal(err)
	}
	if r := s.PutIfAbsent(context.Background(), key, body); r.Err != nil {
		t.Fatal(r.Err)
	}
}

func TestNoLogIsErrNoTable(t *testing.T) {
	c := clock.System()
	s := objstore.NewMemory(c)
	_, err := open(s, c).Snapshot(t.Context())
	if !errors.Is(err, ErrNoTable) || !errors.Is(err, objstore.ErrNotFound) || !strings.Contains(err.Error(), "table t under mem://") {
		t.Errorf("%v", err)
	}
}

func TestARefreshCostsWhatIsNew(t *testing.T) {
	c := clock.System()
	memory := objstore.NewMemory(c)
	writer, s := newLog(t, memory, c)
	s = grow(t, writer, s, 40)
	traced, err := faultstore.Wrap(memory, c, "")
	if err != nil {
		t.Fatal(err)
	}
	l := open(traced, c)
	requests := func(do func()) string {
		before := len(traced.Trace())
		do()
		kinds := map[string]int{}
		for _, line := range traced.Trace()[before:] {
			kinds[strings.Fields(line)[0]]++
		}
		return fmt.Sprint(kinds)
	}
	var got *Snapshot
	refresh := func() {
		if got, err = l.Refresh(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if r := requests(refresh); r != "map[list:1]" || got.files.root != s.files.root {
		t.Errorf("nothing new costs %s", r)
	}
	newest := grow(t, writer, s, 43)
	if r := requests(refresh); r != "map[get:3 list:1]" {
		t.Errorf("three versions cost %s", r)
	}
	equalState(t, got, newest)
	if s.Version != 40 || s.FileCount() != 40 {
		t.Error("the old snapshot has changed")
	}
	fresh, err := l.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equalState(t, fresh, newest)
}

func TestAnIdleTableCostsOneListingHoweverOldItsSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		memory := objstore.NewMemory(c)
		l, s := newLog(t, memory, c)
		s = grow(t, l, s, 3)
		traced, err := faultstore.Wrap(memory, c, "")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(time.Hour)
			if s, err = open(traced, c).Refresh(t.Context(), s); err != nil || s.Version != 3 {
				t.Fatal(err)
			}
		}
		if n := len(traced.Trace()); n != 3 {
			t.Errorf("three refreshes took %d requests: %v", n, traced.Trace())
		}
		// One new version, and it may be a ghost for all we know: the whole table is read.
		want := grow(t, l, s, 4)
		time.Sleep(time.Hour)
		if s, err = open(traced, c).Refresh(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		equalState(t, s, want)
		if n := len(traced.Trace()); n != 3+8 { // two listings, the hint, five versions
			t.Errorf("it took %v", traced.Trace()[3:])
		}
	})
}

func TestAGapInTheLogIsNamed(t *testing.T) {
	c := clock.System()
	for _, missing := range []int64{0, 3} {
		memory := objstore.NewMemory(c)
		l, s := newLog(t, memory, c)
		s = grow(t, l, s, 6)
		deleteFiles(t, memory, commitName(missing))
		var gap *GapError
		if _, err := l.Snapshot(t.Context()); !errors.As(err, &gap) || gap.Missing != missing || gap.Next != missing+1 || gap.Code() != "log_gap" {
			t.Errorf("without version %d: %v", missing, err)
		}
		if missing > 0 {
			if _, err := l.Since(t.Context(), 0); !errors.As(err, &gap) {
				t.Errorf("since 0 without version %d: %v", missing, err)
			}
		}
		// A checkpoint above covers it.
		if err := l.Checkpoint(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		got, err := l.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equalState(t, got, s)
		// A gap above the checkpoint is one all the same.
		grow(t, l, s, 9)
		deleteFiles(t, memory, commitName(8))
		if _, err := l.Snapshot(t.Context()); !errors.As(err, &gap) || gap.Missing != 8 || gap.Next != 9 {
			t.Errorf("without version 8: %v", err)
		}
	}
}

func TestADamagedCheckpointIsPassedOverWhileTheLogHasTheRest(t *testing.T) {
	c := clock.System()
	memory := objstore.NewMemory(c)
	l, s := newLog(t, memory, c)
	four := grow(t, l, s, 4)
	if err := l.Checkpoint(t.Context(), four); err != nil {
		t.Fatal(err)
	}
	eight := grow(t, l, four, 8)
	if err := l.Checkpoint(t.Context(), eight); err != nil {
		t.Fatal(err)
	}
	body, _, err := memory.Get(t.Context(), "t/_delta_log/"+checkpointName(8))
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, memory, "t/_delta_log/"+checkpointName(8), body[:len(body)/2])
	deleteFiles(t, memory, commitName(0), commitName(1))
	got, err := l.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equalState(t, got, eight)
	if _, err := l.Refresh(t.Context(), four); err != nil {
		t.Error(err)
	}
	deleteFiles(t, memory, checkpointName(4))
	var damaged *CheckpointError
	var gap *GapError
	if _, err := l.Snapshot(t.Context()); !errors.As(err, &damaged) || !errors.As(err, &gap) || damaged.Code() != "checkpoint_unreadable" {
		t.Errorf("%v", err)
	}
}

func TestTheHintMayBeWrong(t *testing.T) {
	c := clock.System()
	for name, body := range map[string]string{
		"garbage": "not json", "negative": `{"version":-3}`, "beyond the log": `{"version":999999999}`, "no such checkpoint": `{"version":2}`,
		"empty": "", "largest": `{"version":9223372036854775807}`, "too large": `{"version":92233720368547758070}`, "old": `{"version":4,"size":7}`,
	} {
		memory := objstore.NewMemory(c)
		l, s := newLog(t, memory, c)
		four := grow(t, l, s, 4)
		if err := l.Checkpoint(t.Context(), four); err != nil {
			t.Fatal(err)
		}
		want := grow(t, l, four, 6)
		overwrite(t, memory, "t/_delta_log/_last_checkpoint", []byte(body))
		got, err := l.Snapshot(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		equalState(t, got, want)
		if got.Checkpoint != 4 {
			t.Errorf("%s: checkpoint %d", name, got.Checkpoint)
		}
	}
}

// parts writes the checkpoint of a snapshot in several files.
func parts(t *testing.T, s objstore.Store, snapshot *Snapshot, n int) []string {
	t.Helper()
	var names []string
	for part := range n {
		slice := *snapshot
		slice.files, slice.txns, slice.tombstones = tree[*dataFile]{}, tree[mark]{}, tree[tombstone]{}
		i := 0
		for f := range snapshot.Files() {
			if i%n == part {
				slice.setFile(newFile(f))
			}
			i++
		}
		if part == 0 {
			slice.txns = snapshot.txns
		}
		var body bytes.Buffer
		if err := encodeCheckpoint(&body, &slice); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%020d.checkpoint.%010d.%010d.parquet", snapshot.Version, part+1, n)
		if r := s.PutIfAbsent(context.Background(), "t/_delta_log/"+name, body.Bytes()); r.Err != nil {
			t.Fatal(r.Err)
		}
		names = append(names, name)
	}
	return names
}

func TestMultiPartCheckpointsAreReadWhenComplete(t *testing.T) {
	c := clock.System()
	memory := objstore.NewMemory(c)
	l, s := newLog(t, memory, c)
	want := grow(t, l, s, 7)
	names := parts(t, memory, want, 3)
	for v := range want.Version {
		deleteFiles(t, memory, commitName(v))
	}
	got, err := l.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equalState(t, got, want)
	deleteFiles(t, memory, names[1])
	var gap *GapError
	if got, err := l.Snapshot(t.Context()); !errors.As(err, &gap) {
		t.Errorf("with a part missing: %+v, %v", got, err)
	}
}

// raced deletes what a cleanup would delete right after the first listing.
type raced struct {
	objstore.Store
	clean func()
}

func (r *raced) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	page, err := r.Store.List(ctx, req)
	if clean := r.clean; clean != nil {
		r.clean = nil
		clean()
	}
	return page, err
}

func TestACleanupBetweenListingAndReadingIsSurvived(t *testing.T) {
	c := clock.System()
	memory := objstore.NewMemory(c)
	l, s := newLog(t, memory, c)
	old := grow(t, l, s, 3)
	want := grow(t, l, old, 6)
	store := &raced{Store: memory}
	clean := func() {
		if err := l.Checkpoint(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		for v := range want.Version {
			deleteFiles(t, memory, commitName(v))
		}
	}
	store.clean = clean
	got, err := open(store, c).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equalState(t, got, want)
	if got, err = open(store, c).Refresh(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	equalState(t, got, want)
}

func TestARefreshNoticesThatTheLogWasReplaced(t *testing.T) {
	c := clock.System()
	memory := objstore.NewMemory(c)
	l, s := newLog(t, memory, c)
	s = grow(t, l, s, 3)
	for v := range int64(4) {
		deleteFiles(t, memory, commitName(v))
	}
	if _, err := l.Refresh(t.Context(), s); !errors.Is(err, ErrNoTable) {
		t.Errorf("%v", err)
	}
	if _, err := l.Create(t.Context(), NewProtocol(false, false), Metadata{ID: "U", SchemaString: schemaPlain}, CommitInfo{}); err != nil {
		t.Fatal(err)
	}
	got, err := l.Refresh(t.Context(), s)
	if err != nil || got.Metadata.ID != "U" || got.Version != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	// Even by one that is just as long.
	other := grow(t, l, got, 3)
	if got, err = l.Refresh(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	equalState(t, got, other)
}

func TestAStoreThatFailsIsNotTakenForDamage(t *testing.T) {
	c := clock.System()
	memory := objstore.NewMemory(c)
	l, s := newLog(t, memory, c)
	s = grow(t, l, s, 3)
	if err := l.Checkpoint(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want := grow(t, l, s, 4)
	for _, fault := range []string{"any *.checkpoint.parquet: fail before send", "get *.json: throttle", "list *: refuse"} {
		faulty, err := faultstore.Wrap(memory, c, fault)
		if err != nil {
			t.Fatal(err)
		}
		var stored *objstore.Error
		var damaged *CheckpointError
		if _, err := open(faulty, c).Snapshot(t.Context()); !errors.As(err, &stored) || errors.As(err, &damaged) || len(faulty.Unused()) > 0 {
			t.Errorf("%s: %v", fault, err)
		}
	}
	// The hint is only a hint.
	faulty, err := faultstore.Wrap(memory, c, "get *_last_checkpoint: fail before send")
	if err != nil {
		t.Fatal(err)
	}
	got, err := open(faulty, c).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equalState(t, got, want)
}

// Random histories of commits, checkpoints and cleanups, of Tidemark and others: however the table is read, it is the
// same, and every snapshot that was taken stays what it was.
func TestEveryWayToReadATableGivesTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := clock.System()
		memory := objstore.NewMemory(c)
		l, s := newLog(t, memory, c)
		type kept struct {
			snapshot *Snapshot
			dump     string
		}
		var all []kept
		for step := range rapid.IntRange(1, 25).Draw(rt, "steps") {
			all = append(all, kept{s, dump(s)})
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				if err := l.Checkpoint(t.Context(), s); err != nil {
					rt.Fatal(err)
				}
				if rapid.Bool().Draw(rt, "clean") {
					for v := range s.Version {
						deleteFiles(t, memory, commitName(v))
					}
				}
			case 1:
				foreign(t, memory, s.Version+1, fmt.Sprintf(`{"add":{"path":"their%%20%d","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`, step))
			default:
				in := merge(s, fmt.Sprint("x", step), s.Mark("a"), s.Mark("a")+1)
				for f := range s.Files() {
					if rapid.IntRange(0, 3).Draw(rt, "remove") == 0 {
						in.Removes = append(in.Removes, Remove{Path: f.Path, DataChange: true})
					}
				}
				res, err := l.Commit(t.Context(), in)
				if err != nil {
					rt.Fatal(err)
				}
				s = res.Snapshot
				continue
			}
			var err error
			if s, err = l.Refresh(t.Context(), s); err != nil {
				rt.Fatal(err)
			}
		}
		fresh, err := l.Snapshot(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		equalState(t, fresh, s)
		for _, k := range all {
			if got := dump(k.snapshot); got != k.dump {
				rt.Fatalf("the snapshot of version %d has changed from\n%s to\n%s", k.snapshot.Version, k.dump, got)
			}
			refreshed, err := l.Refresh(t.Context(), k.snapshot)
			if err != nil {
				rt.Fatal(err)
			}
			equalState(t, refreshed, s)
			// Adding the difference to the old snapshot gives the new one's files and marks.
			if d := k.snapshot.apply(diff(k.snapshot, s)); files(d) != files(s) {
				rt.Fatalf("the difference leads to\n%s, not\n%s", files(d), files(s))
			}
		}
	})
}

// files is a dump without tombstones, of which a difference knows only paths.
func files(s *Snapshot) string {
	var out []string
	for line := range strings.SplitSeq(dump(s), "\n") {
		if !strings.HasPrefix(line, "tombstone") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func TestAnOldSnapshotIsLoadedAfreshBecauseItsNextVersionMayBeAGhost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		memory := objstore.NewMemory(c)
		l, s := newLog(t, memory, c)
		old := grow(t, l, s, 3)
		want := grow(t, l, old, 4)
		if err := l.Checkpoint(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		// Version 4 was cleaned, and a stalled commit has put its own 4 there.
		deleteFiles(t, memory, commitName(4))
		foreign(t, memory, 4, `{"add":{"path":"ghost","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`)
		got, err := l.Refresh(t.Context(), old)
		if err != nil {
			t.Fatal(err)
		}
		equalState(t, got, want)
	})
}

func TestAForeignWriteStopsAnUpsertTable(t *testing.T) {
	c := clock.System()
	upsert := map[string]string{PropertyMode: modeUpsert}
	add := `{"add":{"path":"theirs","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`
	memory := objstore.NewMemory(c)
	l, s := newLogWith(t, memory, c, NewProtocol(true, false), upsert)

	// Changes that leave the rows alone are not its business.
	foreign(t, memory, 1, `{"txn":{"appId":"x","version":1}}`)
	calm, err := l.Refresh(t.Context(), s)
	if err != nil || calm.Foreign() != nil {
		t.Fatal(err, calm.Foreign())
	}
	foreign(t, memory, 2, add)
	for name, load := range map[string]func() (*Snapshot, error){
		"snapshot": func() (*Snapshot, error) { return l.Snapshot(t.Context()) },
		"refresh":  func() (*Snapshot, error) { return l.Refresh(t.Context(), calm) },
	} {
		stopped, err := load()
		if err != nil {
			t.Fatal(err)
		}
		var write *ForeignWriteError
		if !errors.As(stopped.Foreign(), &write) || write.Version != 2 || write.Engine != "Apache-Spark/4.0" || write.Table != "t" || write.Code() != "foreign_write" {
			t.Errorf("%s: %v", name, stopped.Foreign())
		}
		if err := l.Checkpoint(t.Context(), stopped); !errors.As(err, &write) {
			t.Errorf("checkpoint: %v", err)
		}
		in := merge(calm, "x", 0, 1)
		in.Upsert, in.Buckets = true, []string{"bucket-0001"}
		if _, err := l.Commit(t.Context(), in); !errors.As(err, &write) {
			t.Errorf("merge: %v", err)
		}
	}
	// The commit may be gone below another engine's checkpoint. The file still names no bucket.
	stopped, err := l.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	if err := encodeCheckpoint(&body, stopped); err != nil {
		t.Fatal(err)
	}
	if r := memory.PutIfAbsent(t.Context(), "t/_delta_log/"+checkpointName(2), body.Bytes()); r.Err != nil {
		t.Fatal(r.Err)
	}
	if stopped, err = l.Snapshot(t.Context()); err != nil || stopped.Foreign() == nil {
		t.Errorf("from a checkpoint: %v, %v", stopped.Foreign(), err)
	}
	// An append table takes what others add.
	memory = objstore.NewMemory(c)
	l, _ = newLog(t, memory, c)
	foreign(t, memory, 1, add)
	if s, err := l.Snapshot(t.Context()); err != nil || s.Foreign() != nil || s.FileCount() != 1 {
		t.Errorf("append table: %v, %v", s.Foreign(), err)
	}
}

func TestTablesThatNeedMoreOfReadersAreRefusedWhereverItShows(t *testing.T) {
	c := clock.System()
	vector := `"deletionVector":{"storageType":"u","pathOrInlineDv":"x","sizeInBytes":1,"cardinality":1}`
	for name, line := range map[string]string{
		"the reader feature deletionVectors": `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}`,
		"deletion vectors":                   `{"add":{"path":"p","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,` + vector + `}}`,
		"column mapping":                     `{"metaData":{"id":"T","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],"configuration":{"delta.columnMapping.mode":"name"}}}`,
		"data files of format":               `{"metaData":{"id":"T","format":{"provider":"orc","options":{}},"schemaString":"{}","partitionColumns":[],"configuration":{}}}`,
	} {
		memory := objstore.NewMemory(c)
		l, s := newLog(t, memory, c)
		foreign(t, memory, 1, line)
		var refused *UnsupportedError
		for how, load := range map[string]func() error{
			"snapshot": func() error { _, err := l.Snapshot(t.Context()); return err },
			"refresh":  func() error { _, err := l.Refresh(t.Context(), s); return err },
		} {
			if err := load(); !errors.As(err, &refused) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s, %s: %v", name, how, err)
			}
		}
	}
}

// A log that begins with a checkpoint of the second kind says so, by the feature's name, instead of looking damaged.
func TestALogThatBeginsWithACheckpointOfTheSecondKindIsRefusedByName(t *testing.T) {
	c := clock.System()
	for _, ending := range []string{"json", "parquet"} {
		memory := objstore.NewMemory(c)
		l, _ := newLog(t, memory, c)
		foreign(t, memory, 1, `{"add":{"path":"p","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`)
		if r := memory.PutIfAbsent(t.Context(), l.key("00000000000000000001.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5."+ending), []byte("{}")); r.Err != nil {
			t.Fatal(r.Err)
		}
		if _, err := l.Snapshot(t.Context()); err != nil {
			t.Fatalf("the versions are still there: %v", err)
		}
		if err := memory.Delete(t.Context(), l.key(commitName(0))); err != nil {
			t.Fatal(err)
		}
		_, err := open(memory, c).Snapshot(t.Context())
		var refused *UnsupportedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), "v2Checkpoint") {
			t.Errorf("%s: %v", ending, err)
		}
	}
}

func TestUnreadableVersionsAreTyped(t *testing.T) {
	c := clock.System()
	good := `{"add":{"path":"p","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`
	for name, lines := range map[string][]string{
		"no JSON":               {`{"add":`},
		"wrong type":            {`{"add":{"path":7}}`},
		"path escapes":          {strings.Replace(good, `"p"`, `"../p"`, 1)},
		"negative size":         {strings.Replace(good, `"size":1`, `"size":-1`, 1)},
		"added twice":           {good, good},
		"added and removed":     {good, `{"remove":{"path":"p","dataChange":true}}`},
		"two protocols":         {`{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}`, `{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}`},
		"one transaction twice": {`{"txn":{"appId":"x","version":1}}`, `{"txn":{"appId":"x","version":2}}`},
	} {
		memory := objstore.NewMemory(c)
		l, _ := newLog(t, memory, c)
		foreign(t, memory, 1, lines...)
		var bad *CommitFileError
		if _, err := l.Snapshot(t.Context()); !errors.As(err, &bad) || bad.Version != 1 || bad.Code() != "commit_unreadable" {
			t.Errorf("%s: %v", name, err)
		}
	}
	memory := objstore.NewMemory(c)
	foreign(t, memory, 0, good)
	var bad *CommitFileError
	if _, err := open(memory, c).Snapshot(t.Context()); !errors.As(err, &bad) || bad.Version != 0 {
		t.Errorf("a log without metaData: %v", err)
	}
}

func TestOtherFilesInTheLogAreIgnored(t *testing.T) {
	c := clock.System()
	memory := objstore.NewMemory(c)
	l, s := newLog(t, memory, c)
	want := grow(t, l, s, 3)
	for _, name := range []string{
		"00000000000000000003.crc", "00000000000000000001.00000000000000000002.compacted.json", "_sidecars/x.parquet",
		"00000000000000000002.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json", "99999999999999999999.json", "4.json", ".tmp",
		"00000000000000000004.json.tmp", "00000000000000000002.checkpoint.0000000002.0000000001.parquet", "_staged_commits/00000000000000000004.x.json",
	} {
		if r := memory.PutIfAbsent(t.Context(), "t/_delta_log/"+name, []byte("x")); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	got, err := l.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equalState(t, got, want)
}

// A hundred thousand files must fit into memory many times over, and the estimate that bounds caches must be honest.
func TestMemoryIsEstimated(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	s := &Snapshot{Metadata: Metadata{ID: "T"}}
	for i := range 30_000 {
		s.setFile(newFile(Add{
			Path: fmt.Sprintf("part-0123456789abcdef0123456789abcdef-%d.parquet", i), Stats: strings.Repeat("s", 300) + fmt.Sprint(i),
			Tags: map[string]string{TagBucket: fmt.Sprintf("bucket-%04d", i%64), TagKeyMin: fmt.Sprint("a", i), TagKeyMax: fmt.Sprint("b", i)},
		}))
		s.setTombstone(fmt.Sprintf("part-fedcba9876543210fedcba9876543210-%d.parquet", i), tombstone{at: 1})
		s.setTxn(Txn{AppID: AppID("0123456789abcdef0123456789abcdef", fmt.Sprint("shard-", i)), Version: 1})
	}
	took, estimate := heap()-before, s.Memory()
	if estimate < took*3/4 || estimate > took*3/2 {
		t.Errorf("it takes %d bytes, and the estimate is %d", took, estimate)
	}
	runtime.KeepAlive(s)
}

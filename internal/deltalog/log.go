package deltalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

const (
	// loadAttempts: a cleanup may delete what a listing has just shown; a fresh listing then shows the checkpoint
	// that made that right. Losing that race again and again takes a cleanup per attempt.
	loadAttempts = 4
	// fetchParallel and fetchBytes bound the versions that are read at once, and so the memory they take.
	fetchParallel = 8
	fetchBytes    = 64 << 20
	// commitBytesMax is far above any sensible version (a million files are about 500 MB) and keeps a damaged or
	// hostile one from taking all memory.
	commitBytesMax = 512 << 20
	// trustMax is how old a snapshot may be that is refreshed version by version. After that a cleanup may have deleted
	// the next version and a stalled commit may have put another one in its place.
	trustMax = 10 * time.Minute
)

// Options are what a log needs besides its store. Log may be nil.
type Options struct {
	Clock  clock.Clock
	Random random.Source
	Log    hclog.Logger
}

// Log is the Delta log of one table. It holds no state and is safe for concurrent use.
type Log struct {
	store  objstore.Store
	table  string
	clock  clock.Clock
	random random.Source
	log    hclog.Logger
}

// Open returns the log of a table, whether it exists or not. It sends no request.
func Open(s objstore.Store, table string, o Options) *Log {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	return &Log{store: s, table: table, clock: o.Clock, random: o.Random, log: o.Log.With("table", table)}
}

// Table is the name of the log's table.
func (l *Log) Table() string { return l.table }

func (l *Log) retry() objstore.Retry { return objstore.Retry{Clock: l.clock, Random: l.random} }

// Snapshot reads the newest version from storage alone: from the newest complete checkpoint and the versions after it.
// Without a log the error is ErrNoTable. A checkpoint that is damaged is passed over if an older one, or the whole log,
// is still there.
func (l *Log) Snapshot(ctx context.Context) (*Snapshot, error) {
	var err error
	for range loadAttempts {
		var s *Snapshot
		if s, err = l.load(ctx); err == nil {
			if err := readable(l.table, s.Protocol, s.Metadata); err != nil {
				return nil, err
			}
			return s, nil
		}
		if !errors.Is(err, objstore.ErrNotFound) || errors.Is(err, ErrNoTable) {
			break
		}
	}
	return nil, err
}

func (l *Log) load(ctx context.Context) (*Snapshot, error) {
	start := now(l.clock)
	hint := l.lastCheckpoint(ctx)
	list, err := l.list(ctx, max(hint, 0))
	if err != nil {
		return nil, err
	}
	if hint > 0 && list.newestCheckpoint() < hint {
		// The hint is wrong or what it points at is gone: the whole listing knows.
		if list, err = l.list(ctx, 0); err != nil {
			return nil, err
		}
		hint = 0
	}
	s, err := l.replayFrom(ctx, list)
	var damaged *CheckpointError
	if errors.As(err, &damaged) && hint > 0 {
		if list, err = l.list(ctx, 0); err != nil {
			return nil, err
		}
		s, err = l.replayFrom(ctx, list)
	}
	if err != nil {
		return nil, err
	}
	s.checked, s.LoadedAt = start, start.wall
	s.etag = list.etagOf(s.Version)
	return s.withoutExpired(start.wall), nil
}

// replayFrom builds the newest snapshot of a listing, from its newest readable checkpoint.
func (l *Log) replayFrom(ctx context.Context, list *listing) (*Snapshot, error) {
	if len(list.versions) == 0 && len(list.checkpoints) == 0 {
		return nil, fmt.Errorf("table %s under %s: %w", l.table, l.store.URL(), ErrNoTable)
	}
	var damaged error
	for i := len(list.checkpoints) - 1; i >= 0; i-- {
		cp := list.checkpoints[i]
		versions, err := list.after(l.table, cp.version)
		if err != nil {
			return nil, errors.Join(damaged, err)
		}
		base, err := l.readCheckpoint(ctx, cp)
		var bad *CheckpointError
		switch {
		case errors.As(err, &bad):
			l.log.Warn("checkpoint is damaged; trying an older one", "version", cp.version, "error", err)
			damaged = errors.Join(damaged, err)
			continue
		case err != nil:
			return nil, err
		}
		base.Checkpoint = list.newestCheckpoint()
		return l.replay(ctx, base, versions)
	}
	versions, err := list.after(l.table, -1)
	if err != nil {
		return nil, errors.Join(damaged, err)
	}
	base := &Snapshot{table: l.table, Version: -1, Checkpoint: list.newestCheckpoint()}
	s, err := l.replay(ctx, base, versions)
	if err != nil {
		return nil, errors.Join(damaged, err)
	}
	if s.Metadata.ID == "" || s.Protocol.MinReaderVersion == 0 {
		return nil, &CommitFileError{Table: l.table, Version: 0, Err: errors.New("the log holds no metaData with an id, or no protocol")}
	}
	return s, nil
}

func (l *Log) replay(ctx context.Context, s *Snapshot, versions []logFile) (*Snapshot, error) {
	err := l.eachCommit(ctx, versions, func(c Commit) error {
		s = s.apply(c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Refresh returns the newest version, reading only what came after a snapshot: one listing if nothing did. A snapshot
// that is older than ten minutes and no longer the newest, or whose own version is no longer in the log, is loaded
// afresh instead.
func (l *Log) Refresh(ctx context.Context, s *Snapshot) (*Snapshot, error) {
	next, _, err := l.follow(ctx, s)
	if errors.Is(err, errNotContiguous) {
		return l.Snapshot(ctx)
	}
	return next, err
}

// advance brings a snapshot up to date and extends the list of commits since the plan's snapshot. When the versions in
// between can no longer be trusted to be the ones that were committed, the list becomes one commit: the difference.
func (l *Log) advance(ctx context.Context, plan, cur *Snapshot, since []Commit) (*Snapshot, []Commit, error) {
	next, commits, err := l.follow(ctx, cur)
	if !errors.Is(err, errNotContiguous) {
		return next, append(since, commits...), err
	}
	if next, err = l.Snapshot(ctx); err != nil {
		return nil, nil, err
	}
	return next, []Commit{diff(plan, next)}, nil
}

// peek is advance for whoever has just found the next version taken: it reads the versions after cur by their names, several
// at once, without a listing. What is there under a number above cur's was committed after the log was last listed, which
// is less than a minute ago, so that no cleanup can have deleted such a number and no stalled commit can stand in its place.
// The time of that listing therefore stays the snapshot's.
func (l *Log) peek(ctx context.Context, plan, cur *Snapshot, since []Commit) (*Snapshot, []Commit, error) {
	began := cur.checked
	for first := true; ; first = false {
		found, ok, err := l.after(ctx, cur.Version)
		if err != nil {
			return nil, nil, err
		}
		if !ok || first && len(found) == 0 {
			return l.advance(ctx, plan, cur, since)
		}
		for _, c := range found {
			next := *cur.apply(c)
			next.checked, next.LoadedAt, next.etag = began, began.wall, ""
			cur, since = &next, append(since, c)
		}
		if len(found) < peekVersions {
			return cur.withoutExpired(l.clock.Now()), since, readable(l.table, cur.Protocol, cur.Metadata)
		}
	}
}

// after reads the versions after one by their names, as many as there are but at most peekVersions; false if one is large.
func (l *Log) after(ctx context.Context, version int64) (found []Commit, ok bool, err error) {
	found = make([]Commit, peekVersions)
	missing, large := make([]bool, peekVersions), make([]bool, peekVersions)
	g, gctx := errgroup.WithContext(ctx)
	for i := range found {
		n := version + 1 + int64(i)
		g.Go(func() error {
			body, err := l.store.GetRange(gctx, l.key(commitName(n)), 0, peekBytesMax+1)
			switch {
			case errors.Is(err, objstore.ErrNotFound):
				missing[i] = true
				return nil
			case err != nil:
				return fmt.Errorf("table %s: reading version %d: %w", l.table, n, err)
			case len(body) > peekBytesMax:
				large[i] = true
			default:
				found[i], err = l.parse(n, body)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, false, err
	}
	if n := slices.Index(missing, true); n >= 0 {
		found = found[:n]
	}
	return found, !slices.Contains(large[:len(found)], true), nil
}

// errNotContiguous: the versions after a snapshot are gone, or may not be the ones that were committed.
var errNotContiguous = errors.New("the log does not continue where the snapshot ends")

// follow reads the versions after a snapshot. The error is errNotContiguous if only a fresh load can be trusted.
func (l *Log) follow(ctx context.Context, s *Snapshot) (*Snapshot, []Commit, error) {
	old := s.checked.age(l.clock) > trustMax
	start := now(l.clock)
	list, err := l.list(ctx, s.Version)
	if err != nil {
		return nil, nil, err
	}
	// The snapshot's own version must still be there: if not, the log was replaced, or cleaned beyond it, and a
	// version after it may be a stalled commit's that counts nowhere.
	if len(list.versions) == 0 || list.versions[0].version != s.Version || s.etag != "" && list.versions[0].ETag != s.etag {
		return nil, nil, errNotContiguous
	}
	versions, err := list.after(l.table, s.Version)
	if err != nil || old && (len(versions) > 0 || s.etag == "" || list.newestCheckpoint() > s.Version) {
		return nil, nil, errNotContiguous
	}
	next := *s
	out := &next
	var commits []Commit
	err = l.eachCommit(ctx, versions, func(c Commit) error {
		out = out.apply(c)
		commits = append(commits, c)
		return nil
	})
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, nil, errNotContiguous // cleaned since the listing
	}
	if err != nil {
		return nil, nil, err
	}
	if len(versions) > 0 {
		if err := readable(l.table, out.Protocol, out.Metadata); err != nil {
			return nil, nil, err
		}
		out = out.withoutExpired(start.wall)
	}
	final := *out
	final.checked, final.LoadedAt = start, start.wall
	final.etag = list.etagOf(final.Version)
	final.Checkpoint = max(s.Checkpoint, list.newestCheckpoint())
	return &final, commits, nil
}

// Since returns the commits after a version, oldest first.
func (l *Log) Since(ctx context.Context, version int64) ([]Commit, error) {
	list, err := l.list(ctx, max(version, 0))
	if err != nil {
		return nil, err
	}
	versions, err := list.after(l.table, version)
	if err != nil {
		return nil, err
	}
	var commits []Commit
	err = l.eachCommit(ctx, versions, func(c Commit) error {
		commits = append(commits, c)
		return nil
	})
	return commits, err
}

// eachCommit reads versions, a few at once, and hands them over in order.
func (l *Log) eachCommit(ctx context.Context, versions []logFile, use func(Commit) error) error {
	for len(versions) > 0 {
		n, size := 1, versions[0].Size
		for n < min(fetchParallel, len(versions)) && size+versions[n].Size <= fetchBytes {
			size += versions[n].Size
			n++
		}
		batch := versions[:n]
		versions = versions[n:]
		commits := make([]Commit, len(batch))
		g, gctx := errgroup.WithContext(ctx)
		for i, v := range batch {
			g.Go(func() (err error) {
				commits[i], err = l.readCommit(gctx, v)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for _, c := range commits {
			if err := use(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Log) readCommit(ctx context.Context, f logFile) (Commit, error) {
	if f.Size > commitBytesMax {
		return Commit{}, &CommitFileError{Table: l.table, Version: f.version, Err: fmt.Errorf("it has %d bytes; at most %d are read", f.Size, commitBytesMax)}
	}
	body, _, err := l.store.Get(ctx, f.Key)
	if err != nil {
		return Commit{}, fmt.Errorf("table %s: reading version %d: %w", l.table, f.version, err)
	}
	return l.parse(f.version, body)
}

func (l *Log) parse(version int64, body []byte) (Commit, error) {
	c, err := parseCommit(version, body)
	switch {
	case errors.Is(err, errDeletionVector):
		return Commit{}, &UnsupportedError{l.table, "deletion vectors", fmt.Sprintf("version %d has some; rewrite the table without them (REORG … APPLY PURGE) and drop the feature", version)}
	case err != nil:
		return Commit{}, &CommitFileError{Table: l.table, Version: version, Err: err}
	}
	return c, nil
}

package shardmanifest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

const (
	// latestTries bounds how often the newest manifest is listed again because cleanup deleted it between the list
	// and the get. Each round means that seventeen versions were committed in between.
	latestTries = 8

	// commitTries bounds how often an event is applied anew because somebody else's put came first. A shard has one
	// writer and one cleanup; only a storm of claims could need more.
	commitTries = 32

	// reissueTries bounds how often one call sends an unanswered put again, beyond the four times of a PutOnce.
	reissueTries = 3

	// reissuePause is the longest wait before a put is sent again.
	reissuePause = 500 * time.Millisecond
)

// Options are what a Chain needs besides the store.
type Options struct {
	Clock  clock.Clock
	Random random.Source
}

// Chain is the manifest chain of one shard. It holds no state but its name and is safe for concurrent use.
type Chain struct {
	store          objstore.Store
	table, tableID string
	shard          string
	clock          clock.Clock
	random         random.Source
}

// Open names a chain. It reads nothing; the shard need not exist.
func Open(s objstore.Store, table, tableID, shard string, o Options) *Chain {
	return &Chain{store: s, table: table, tableID: tableID, shard: shard, clock: o.Clock, random: o.Random}
}

func (c *Chain) dir() string            { return shardDir(c.table, c.tableID, c.shard) }
func (c *Chain) manifestPrefix() string { return c.dir() + "/manifest/" }
func (c *Chain) generationPrefix() string {
	return c.dir() + "/gen/"
}
func (c *Chain) manifestKey(version uint64) string { return c.manifestPrefix() + manifestName(version) }

func shardsDir(table, tableID string) string { return path.Join(table, "_shards", tableID) }
func shardDir(table, tableID, shard string) string {
	return path.Join(shardsDir(table, tableID), shard)
}

// GenerationPath draws a fresh path, relative to the table, for a generation's file.
func (c *Chain) GenerationPath(number uint64) string {
	return path.Join("_shards", c.tableID, c.shard, "gen", generationName(number, random.ID(c.random)))
}

// Key is the object-store key of a path relative to the table.
func (c *Chain) Key(relative string) string { return path.Join(c.table, relative) }

// Latest reads the newest manifest: one list of one key and one get. It fails with ErrNoShard if there is none.
func (c *Chain) Latest(ctx context.Context) (*Manifest, error) {
	for range latestTries {
		version, err := c.latestVersion(ctx)
		if err != nil {
			return nil, err
		}
		m, err := c.load(ctx, version)
		if !errors.Is(err, objstore.ErrNotFound) {
			return m, err
		}
	}
	return nil, c.wrap("read the newest manifest", ErrContended)
}

// latestVersion lists the number of the newest manifest.
func (c *Chain) latestVersion(ctx context.Context) (uint64, error) {
	// The slash skips whatever sorts below the digits: no manifest does.
	after := c.manifestPrefix() + "/"
	for {
		page, err := c.store.List(ctx, objstore.ListRequest{Prefix: c.manifestPrefix(), After: after, Max: 1})
		if err != nil {
			return 0, c.wrap("list the newest manifest", err)
		}
		for _, o := range page.Objects {
			if version, ok := parseManifestName(path.Base(o.Key)); ok {
				return version, nil
			}
		}
		if !page.More {
			return 0, c.wrap("read the newest manifest", ErrNoShard)
		}
		after = page.Next
	}
}

// load reads one version. A missing one is objstore.ErrNotFound.
func (c *Chain) load(ctx context.Context, version uint64) (*Manifest, error) {
	return load(ctx, c.store, c.table, c.tableID, c.shard, version)
}

func load(ctx context.Context, s objstore.Store, table, tableID, shard string, version uint64) (*Manifest, error) {
	key := shardDir(table, tableID, shard) + "/manifest/" + manifestName(version)
	body, _, err := s.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("shard %s of table %s: read manifest version %d: %w", shard, table, version, err)
	}
	m, err := Decode(body)
	if err == nil && (m.Version != version || m.TableID != tableID || m.Shard != shard) {
		err = fmt.Errorf("%w: it is version %d of shard %s of table id %s", ErrDamaged, m.Version, m.Shard, m.TableID)
	}
	if err != nil {
		return nil, fmt.Errorf("shard %s of table %s: manifest %s: %w", shard, table, key, err)
	}
	return m, nil
}

// Retire ends the shard for good; its newest manifest stays. It fails with ErrNoShard if there is nothing to retire.
func (c *Chain) Retire(ctx context.Context) (*Manifest, error) {
	return c.commit(ctx, "retire", retireEvent{})
}

// Trim stops listing the generations up to a merged mark, which the caller has read from storage after the shard's
// manifest of which it is a mark. It does not touch the epoch. The files stay until Clean finds them old enough. Trimming
// what is trimmed already changes nothing.
func (c *Chain) Trim(ctx context.Context, merged uint64) (*Manifest, error) {
	listed, err := c.listManifests(ctx)
	if err != nil {
		return nil, err
	}
	newest, err := c.Latest(ctx)
	if err != nil {
		return nil, err
	}
	return c.commit(ctx, "trim", trimEvent{merged: merged, released: listed.released(newest.Trims)})
}

// commit applies an event that anybody may cause to the newest manifest, until one of its puts counts or the newest
// manifest needs no change any more. When the store stays silent it fails with ErrInDoubt; calling again is then safe.
func (c *Chain) commit(ctx context.Context, what string, ev event) (*Manifest, error) {
	for range commitTries {
		newest, err := c.Latest(ctx)
		if err != nil {
			return nil, err
		}
		next, err := newest.after(ev, random.ID(c.random))
		if errors.Is(err, errNothingToDo) {
			return newest, nil
		}
		if err != nil {
			return nil, c.wrap(what, err)
		}
		landed, err := c.putVersion(ctx, next)
		if err != nil {
			return nil, c.wrap(what, err)
		}
		if landed {
			return next, nil
		}
	}
	return nil, c.wrap(what, ErrContended)
}

// putVersion puts one version and says whether the put counts: it does if its answer is Applied and its number above
// the boundary of the newest manifest read afterwards. It is false when the number is taken or the put void; the caller
// then looks at the newest manifest, which shows what an earlier unanswered put of its own may have done.
func (c *Chain) putVersion(ctx context.Context, next *Manifest) (bool, error) {
	body, err := Encode(next)
	if err != nil {
		return false, err
	}
	for try := range reissueTries {
		if err := c.pauseBefore(ctx, try); err != nil {
			return false, fmt.Errorf("%w: %w", ErrInDoubt, err)
		}
		res := c.put(ctx, next.Version, body)
		switch {
		case res.Outcome == objstore.Refused && errors.Is(res.Err, objstore.ErrExists):
			return false, nil
		case res.Outcome == objstore.Refused:
			return false, fmt.Errorf("put manifest version %d: %w", next.Version, res.Err)
		case res.Outcome == objstore.Unknown && try < reissueTries-1:
			continue
		case res.Outcome == objstore.Unknown:
			return false, fmt.Errorf("put manifest version %d: %w: %w", next.Version, ErrInDoubt, res.Err)
		}
		newest, err := c.newestAfter(ctx, next)
		if err != nil {
			return false, fmt.Errorf("%w: %w", ErrInDoubt, err)
		}
		return next.Version > newest.Boundary, nil
	}
	return false, ErrInDoubt
}

// newestAfter reads the newest manifest after the put of next was answered Applied. In the usual case, where next is
// still the newest, it costs one list of one key.
func (c *Chain) newestAfter(ctx context.Context, next *Manifest) (*Manifest, error) {
	version, err := c.latestVersion(ctx)
	if err != nil {
		return nil, err
	}
	if version == next.Version {
		return next, nil
	}
	return c.Latest(ctx)
}

func (c *Chain) put(ctx context.Context, version uint64, body []byte) objstore.Result {
	return objstore.PutOnce(ctx, c.store, c.manifestKey(version), body, objstore.Retry{Clock: c.clock, Random: c.random})
}

// pauseBefore waits before every try but the first.
func (c *Chain) pauseBefore(ctx context.Context, try int) error {
	if try == 0 {
		return nil
	}
	return c.clock.Sleep(ctx, random.Jitter(c.random, reissuePause))
}

// wrap says which shard of which table an error is about, once.
func (c *Chain) wrap(what string, err error) error {
	var fenced *FencedError
	if errors.As(err, &fenced) {
		fenced.Table, fenced.Shard = c.table, c.shard
		return err
	}
	return fmt.Errorf("shard %s of table %s: %s: %w", c.shard, c.table, what, err)
}

package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/rootlock"
)

const (
	// beatEvery is how often the owner of slot 0 gives a sign of life on storage, and rootEvery how often every master
	// reads root.json again.
	beatEvery = 20 * time.Second
	rootEvery = 30 * time.Second
	// beatWatch is how long a cluster that finds its etcd empty watches another's beats: four of them and some.
	beatWatch = 90 * time.Second
	// beatPoll is how often it looks meanwhile, and recordPoll how often it looks for a record in its etcd: of several
	// masters that are started at once on a new root, one creates both, and the others should not wait long for it.
	beatPoll, recordPoll = 10 * time.Second, 200 * time.Millisecond
	// claimsMax bounds how often a claim starts over because others claim at the same time.
	claimsMax = 8
)

// claimer makes a cluster the one that schedules a root: the record in etcd and root.json name the same id, which no two
// etcd clusters ever share.
type claimer struct {
	kv    clientv3.KV
	keys  etcd.Keys
	store objstore.Store
	clock clock.Clock
	rand  random.Source
	log   hclog.Logger
	watch time.Duration // beatWatch
}

// claim returns the cluster's record, creating what is missing. held is the record that this process held before, nil at
// its start: a running master whose etcd was wiped puts back the id it holds.
//
//  1. P/cluster exists: name and number of slots must be ours; root.json must carry its id, and is created if missing.
//  2. It does not, and root.json is missing, released, or carries the id we hold: create both. (A root that was released
//     while we held it was taken from us by a person: refused.)
//  3. It does not, and root.json is another cluster's by name, or a standalone server's: refused.
//  4. It does not, and root.json carries our name: an etcd that lost everything, or a second cluster of the same name.
//     Watch its beats; if they move, refused; else replace root.json under a new id.
func (c *claimer) claim(ctx context.Context, name string, slots int, held *etcd.Cluster) (etcd.Cluster, error) {
	for range claimsMax {
		record, err := c.record(ctx)
		if err != nil {
			return etcd.Cluster{}, err
		}
		root, etag, err := c.root(ctx)
		if err != nil {
			return etcd.Cluster{}, err
		}
		var done bool
		switch {
		case record != nil:
			if record.Name != name {
				return etcd.Cluster{}, fmt.Errorf("etcd prefix %s belongs to cluster %q and this master is of cluster %q; give it another prefix",
					c.keys.Prefix, record.Name, name)
			}
			done, err = c.claimRoot(ctx, root, etag, *record, held != nil)
			if done {
				return *record, err
			}
		case root == nil, root.Kind == rootlock.Released && held == nil, root.Kind != rootlock.Released && held != nil && root.ID == held.ID:
			err = c.create(ctx, root, etag, etcd.Cluster{V: 1, Name: name, ID: c.idOf(held), Root: c.store.URL(), Slots: slots})
		case root.Kind == rootlock.Released:
			return etcd.Cluster{}, c.refuse(root, "for a person has unlocked it while this master served it")
		case root.Kind == rootlock.Standalone, root.Cluster != name:
			return etcd.Cluster{}, c.refuse(root, "which is not this cluster")
		default:
			err = c.takeOver(ctx, *root, etag, slots)
		}
		if err != nil {
			return etcd.Cluster{}, err
		}
	}
	return etcd.Cluster{}, fmt.Errorf("cluster %q kept changing while its root was claimed; start the master again", name)
}

func (c *claimer) idOf(held *etcd.Cluster) string {
	if held != nil {
		return held.ID
	}
	return random.ID(c.rand)
}

// record reads P/cluster; nil if there is none.
func (c *claimer) record(ctx context.Context) (*etcd.Cluster, error) {
	record, err := etcd.ReadCluster(ctx, c.kv, c.keys)
	if errors.Is(err, etcd.ErrNoCluster) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &record, nil
}

// root reads root.json; nil if there is none.
func (c *claimer) root(ctx context.Context) (*rootlock.Record, string, error) {
	return rootlock.Read(ctx, c.store)
}

func (c *claimer) refuse(holder *rootlock.Record, reason string) error {
	return &rootlock.HeldError{Root: c.store.URL(), Record: *holder, Reason: reason}
}

// claimRoot compares root.json with the cluster's record, or writes it; done says that the record may be used.
func (c *claimer) claimRoot(ctx context.Context, root *rootlock.Record, etag string, record etcd.Cluster, held bool) (done bool, err error) {
	switch {
	case root == nil || root.Kind == rootlock.Released && !held:
		return false, c.putRoot(ctx, etag, record)
	case root.Kind == rootlock.Released:
		return true, c.refuse(root, "for a person has unlocked it while this master served it")
	case root.ID != record.ID:
		return true, c.refuse(root, "and the etcd of this master holds the record of id "+record.ID)
	}
	return true, nil
}

// putRoot writes root.json in the place of the version etag, or of none.
func (c *claimer) putRoot(ctx context.Context, etag string, record etcd.Cluster) error {
	body := rootlock.Record{Nonce: random.ID(c.rand), Kind: rootlock.Cluster, Cluster: record.Name, ID: record.ID}.Encode()
	retry := objstore.Retry{Clock: c.clock, Random: c.rand}
	var r objstore.Result
	if etag == "" {
		r = objstore.PutOnce(ctx, c.store, rootlock.RootKey, body, retry)
	} else {
		r = objstore.Replace(ctx, c.store, rootlock.RootKey, body, etag, retry)
	}
	if r.Err != nil && !errors.Is(r.Err, objstore.ErrExists) && !errors.Is(r.Err, objstore.ErrMismatch) {
		return fmt.Errorf("claiming root %s: %w", c.store.URL(), r.Err)
	}
	return nil // whoever was first is found by the next round
}

// create writes root.json, if nobody holds it, and then P/cluster. Both may be lost to another master; the next round
// reads what stands.
func (c *claimer) create(ctx context.Context, root *rootlock.Record, etag string, record etcd.Cluster) error {
	if root == nil || root.Kind == rootlock.Released {
		if err := c.putRoot(ctx, etag, record); err != nil {
			return err
		}
		var err error
		if root, _, err = c.root(ctx); err != nil {
			return err
		}
		if root == nil || root.ID != record.ID || root.Kind != rootlock.Cluster {
			return nil
		}
	}
	return c.createRecord(ctx, record)
}

func (c *claimer) createRecord(ctx context.Context, record etcd.Cluster) error {
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("writing %s: %w", c.keys.Cluster(), err)
	}
	_, err = etcd.Commit(ctx, c.kv, etcd.Txn{
		If:   []clientv3.Cmp{etcd.Absent(c.keys.Cluster())},
		Then: []clientv3.Op{clientv3.OpPut(c.keys.Cluster(), string(value))},
	})
	if err != nil && !errors.Is(err, etcd.ErrUnknown) {
		return fmt.Errorf("creating %s in etcd: %w", c.keys.Cluster(), err)
	}
	return nil
}

// takeOver replaces a root.json of our own name whose cluster gives no sign of life.
func (c *claimer) takeOver(ctx context.Context, root rootlock.Record, etag string, slots int) error {
	c.log.Warn("etcd holds nothing of this cluster, and the root was claimed by a cluster of the same name: watching whether it lives",
		"id", root.ID, "for", c.watch)
	before, err := lastBeat(ctx, c.store, root.ID)
	if err != nil {
		return err
	}
	pause, lookAt := min(recordPoll, c.watch), min(beatPoll, c.watch)
	for waited := pause; ; waited += pause {
		if err := c.clock.Sleep(ctx, pause); err != nil {
			return err
		}
		moved := false
		if waited >= lookAt {
			now, err := lastBeat(ctx, c.store, root.ID)
			if err != nil {
				return err
			}
			moved, lookAt = now != before, min(lookAt+beatPoll, c.watch)
		}
		// Only after the beats: a master of this very etcd gives them as soon as it has made the record.
		if record, err := c.record(ctx); err != nil || record != nil {
			return err // one that runs has put its record back, or another one was faster
		}
		if moved {
			return c.refuse(&root, "whose masters are running with another etcd")
		}
		if waited >= c.watch {
			break
		}
	}
	record := etcd.Cluster{V: 1, Name: root.Cluster, ID: random.ID(c.rand), Root: c.store.URL(), Slots: slots}
	if err := c.putRoot(ctx, etag, record); err != nil {
		return err
	}
	now, _, err := c.root(ctx)
	if err != nil || now == nil || now.ID != record.ID {
		return err
	}
	return c.createRecord(ctx, record)
}

// lastBeat is the number of a cluster's newest beat; 0 if it gave none.
func lastBeat(ctx context.Context, s objstore.Store, id string) (uint64, error) {
	beats, err := rootlock.Beats(ctx, s, id)
	if err != nil || len(beats) == 0 {
		return 0, err
	}
	return slices.Max(beats), nil
}

// beat gives one sign of life and removes the older ones.
func beat(ctx context.Context, s objstore.Store, id string, retry objstore.Retry) error {
	beats, err := rootlock.Beats(ctx, s, id)
	if err != nil {
		return err
	}
	var newest uint64
	if len(beats) > 0 {
		newest = slices.Max(beats)
	}
	r := objstore.PutOnce(ctx, s, rootlock.BeatKey(id, newest+1), fmt.Appendf(nil, `{"v":1,"nonce":%q}`, random.ID(retry.Random)), retry)
	if r.Err != nil && !errors.Is(r.Err, objstore.ErrExists) {
		return fmt.Errorf("giving a sign of life of cluster %s: %w", id, r.Err)
	}
	for _, n := range beats {
		if n == newest {
			continue // a watcher that has just seen it must not take its absence for a move
		}
		if err := s.Delete(ctx, rootlock.BeatKey(id, n)); err != nil {
			return fmt.Errorf("removing an old sign of life of cluster %s: %w", id, err)
		}
	}
	return nil
}

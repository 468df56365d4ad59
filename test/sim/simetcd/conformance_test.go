package simetcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"tidemark/test/etcd/etcdtest"
	"tidemark/test/sim/simetcd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one etcd under test: the simulated one or a real one.
type world struct {
	*testing.T
	c    *clientv3.Client
	ctx  context.Context
	base int64 // revision when the test began; the two count from different ones
	log  strings.Builder
}

// say writes one line of the transcript that both etcds must agree on.
func (w *world) say(format string, args ...any) { fmt.Fprintf(&w.log, format+"\n", args...) }

// rel makes a revision comparable.
func (w *world) rel(revision int64) int64 {
	if revision == 0 {
		return 0
	}
	return revision - w.base
}

func (w *world) kv(kv *clientv3.GetResponse, err error) {
	if err != nil {
		w.say("  error %v", err)
		return
	}
	w.say("  count %d more %v at %d", kv.Count, kv.More, w.rel(kv.Header.Revision))
	for _, k := range kv.Kvs {
		w.say("  %s=%s create %d mod %d version %d leased %v", k.Key, k.Value, w.rel(k.CreateRevision), w.rel(k.ModRevision), k.Version, k.Lease != 0)
	}
}

func (w *world) put(key, value string, opts ...clientv3.OpOption) {
	r, err := w.c.Put(w.ctx, key, value, opts...)
	if err != nil {
		w.say("put %s: %v", key, err)
		return
	}
	w.say("put %s at %d", key, w.rel(r.Header.Revision))
}

func (w *world) txn(name string, cmps []clientv3.Cmp, then, otherwise []clientv3.Op) {
	r, err := w.c.Txn(w.ctx).If(cmps...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		w.say("txn %s: %v", name, err)
		return
	}
	w.say("txn %s: %v at %d", name, r.Succeeded, w.rel(r.Header.Revision))
	for _, op := range r.Responses {
		switch o := op.Response.(type) {
		case *etcdserverpb.ResponseOp_ResponseRange:
			w.say("  range %d", o.ResponseRange.Count)
			for _, k := range o.ResponseRange.Kvs {
				w.say("  %s=%s mod %d", k.Key, k.Value, w.rel(k.ModRevision))
			}
		case *etcdserverpb.ResponseOp_ResponseDeleteRange:
			w.say("  deleted %d", o.ResponseDeleteRange.Deleted)
		case *etcdserverpb.ResponseOp_ResponsePut:
			w.say("  put")
		}
	}
}

// next receives until a response says something.
func (w *world) next(c clientv3.WatchChan) {
	select {
	case r, open := <-c:
		if !open {
			w.say("  watch closed")
			return
		}
		w.say("  watch: created %v canceled %v compacted %d err %v progress %v", r.Created, r.Canceled, w.rel(r.CompactRevision), r.Err(), r.IsProgressNotify())
		for _, ev := range r.Events {
			w.say("  %s %s=%s mod %d", ev.Type, ev.Kv.Key, ev.Kv.Value, w.rel(ev.Kv.ModRevision))
			if ev.PrevKv != nil {
				w.say("    before %s mod %d", ev.PrevKv.Value, w.rel(ev.PrevKv.ModRevision))
			}
		}
	case <-time.After(20 * time.Second):
		w.say("  watch is silent")
	}
}

var stories = map[string]func(w *world){
	"ranges": func(w *world) {
		for _, k := range []string{"a/3", "a/1", "a/2", "b/1", "a", "a0"} {
			w.put(k, "v"+k)
		}
		w.put("a/1", "z")
		w.kv(w.c.Get(w.ctx, "a/1"))
		w.kv(w.c.Get(w.ctx, "nothing"))
		w.kv(w.c.Get(w.ctx, "a/", clientv3.WithPrefix()))
		w.kv(w.c.Get(w.ctx, "a/", clientv3.WithPrefix(), clientv3.WithLimit(2)))
		w.kv(w.c.Get(w.ctx, "a/2", clientv3.WithRange(clientv3.GetPrefixRangeEnd("a/")), clientv3.WithLimit(2)))
		w.kv(w.c.Get(w.ctx, "a/", clientv3.WithPrefix(), clientv3.WithKeysOnly()))
		w.kv(w.c.Get(w.ctx, "a/", clientv3.WithPrefix(), clientv3.WithCountOnly()))
		w.kv(w.c.Get(w.ctx, "a/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend)))
		w.kv(w.c.Get(w.ctx, "a/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend), clientv3.WithLimit(1)))
		w.kv(w.c.Get(w.ctx, "a/", clientv3.WithFromKey()))
		w.kv(w.c.Get(w.ctx, "a/", clientv3.WithPrefix(), clientv3.WithRev(w.base+2)))
		w.kv(w.c.Get(w.ctx, "a/", clientv3.WithPrefix(), clientv3.WithRev(w.base+1000)))
		r, err := w.c.Delete(w.ctx, "a/", clientv3.WithPrefix(), clientv3.WithPrevKV())
		w.say("deleted %d with %d before at %d: %v", r.Deleted, len(r.PrevKvs), w.rel(r.Header.Revision), err)
		r, err = w.c.Delete(w.ctx, "a/1")
		w.say("deleted %d at %d: %v", r.Deleted, w.rel(r.Header.Revision), err)
		w.kv(w.c.Get(w.ctx, "", clientv3.WithFromKey()))
		w.kv(w.c.Get(w.ctx, "a/", clientv3.WithPrefix(), clientv3.WithRev(w.base+7)))
		w.put("a/1", "again")
		w.kv(w.c.Get(w.ctx, "a/1"))
	},
	"txns": func(w *world) {
		w.put("k", "1")
		is := func(c clientv3.Cmp, result string, v any) []clientv3.Cmp {
			return []clientv3.Cmp{clientv3.Compare(c, result, v)}
		}
		get := []clientv3.Op{clientv3.OpGet("k")}
		w.txn("value", is(clientv3.Value("k"), "=", "1"), get, nil)
		w.txn("value not", is(clientv3.Value("k"), "!=", "1"), get, nil)
		w.txn("value of nothing", is(clientv3.Value("none"), "!=", "x"), get, nil)
		w.txn("version", is(clientv3.Version("k"), ">", 0), get, nil)
		w.txn("absent", is(clientv3.CreateRevision("none"), "=", 0), get, nil)
		w.txn("absent by version", is(clientv3.Version("none"), "=", 0), get, nil)
		w.txn("present", is(clientv3.CreateRevision("k"), "=", 0), nil, get)
		w.txn("mod", is(clientv3.ModRevision("k"), "=", int(w.base+1)), []clientv3.Op{clientv3.OpPut("k", "2"), clientv3.OpGet("k"), clientv3.OpPut("l", "3")}, nil)
		w.txn("mod again", is(clientv3.ModRevision("k"), "<", int(w.base+2)), nil, get)
		w.txn("lease of nothing", is(clientv3.LeaseValue("none"), "=", 0), get, nil)
		w.txn("all must hold", append(is(clientv3.Version("k"), "=", 2), is(clientv3.Version("l"), "=", 2)...), get, []clientv3.Op{clientv3.OpDelete("l")})
		w.txn("nothing", nil, nil, nil)
		w.txn("twice", nil, []clientv3.Op{clientv3.OpPut("x", "1"), clientv3.OpPut("x", "2")}, nil)
		w.txn("put and delete", nil, []clientv3.Op{clientv3.OpPut("x", "1"), clientv3.OpDelete("x", clientv3.WithPrefix())}, nil)
		w.txn("delete and read", nil, []clientv3.Op{clientv3.OpDelete("k"), clientv3.OpGet("k"), clientv3.OpGet("", clientv3.WithPrefix())}, nil)
		w.txn("no lease", nil, []clientv3.Op{clientv3.OpPut("y", "1"), clientv3.OpPut("x", "1", clientv3.WithLease(4711))}, nil)
		w.kv(w.c.Get(w.ctx, "y"))
		var many []clientv3.Op
		for i := range 129 {
			many = append(many, clientv3.OpPut(fmt.Sprint(i), ""))
		}
		w.txn("128 fit", nil, many[:128], nil)
		w.txn("129 do not", nil, many, nil)
	},
	"leases": func(w *world) {
		g, err := w.c.Grant(w.ctx, 60)
		w.say("granted %d: %v", g.TTL, err)
		w.put("a", "1", clientv3.WithLease(g.ID))
		w.put("b", "1", clientv3.WithLease(g.ID))
		w.put("b", "2") // takes it from under the lease
		w.put("c", "1", clientv3.WithLease(g.ID))
		w.put("d", "1", clientv3.WithLease(99))
		w.txn("lease", []clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue("a"), "=", g.ID)}, []clientv3.Op{clientv3.OpGet("a")}, nil)
		k, err := w.c.KeepAliveOnce(w.ctx, g.ID)
		w.say("kept for %d: %v", k.TTL, err)
		t, err := w.c.TimeToLive(w.ctx, g.ID, clientv3.WithAttachedKeys())
		w.say("granted for %d, with %d keys: %v", t.GrantedTTL, len(t.Keys), err)
		watch := w.c.Watch(w.ctx, "", clientv3.WithPrefix(), clientv3.WithRev(w.base+5))
		_, err = w.c.Revoke(w.ctx, g.ID)
		w.say("revoked: %v", err)
		w.next(watch)
		_, err = w.c.Revoke(w.ctx, g.ID)
		w.say("revoked again: %v", err)
		_, err = w.c.KeepAliveOnce(w.ctx, g.ID)
		w.say("kept: %v", err)
		t, err = w.c.TimeToLive(w.ctx, g.ID)
		w.say("lives %d: %v", t.TTL, err)
		short, _ := w.c.Grant(w.ctx, 1)
		w.put("e", "1", clientv3.WithLease(short.ID))
		watch = w.c.Watch(w.ctx, "e", clientv3.WithPrevKV())
		w.next(watch) // it runs out
		w.kv(w.c.Get(w.ctx, "", clientv3.WithPrefix()))
		mine := etcdserverpb.LeaseGrantRequest{ID: 4711, TTL: 60}
		_, err = clientv3.RetryLeaseClient(w.c).LeaseGrant(w.ctx, &mine)
		w.say("own id: %v", err)
		_, err = clientv3.RetryLeaseClient(w.c).LeaseGrant(w.ctx, &mine)
		w.say("own id again: %v", rpctypes.Error(err))
	},
	"watches": func(w *world) {
		w.put("a/1", "1")
		w.put("b/1", "1")
		w.put("a/1", "2")
		ctx, cancel := context.WithCancel(w.ctx)
		old := w.c.Watch(ctx, "a/", clientv3.WithPrefix(), clientv3.WithRev(w.base+1), clientv3.WithPrevKV())
		w.next(old) // both revisions, in one message
		onlyDeletes := w.c.Watch(w.ctx, "a/", clientv3.WithPrefix(), clientv3.WithFilterPut())
		created := w.c.Watch(w.ctx, "c", clientv3.WithCreatedNotify())
		w.next(created)
		w.put("a/1", "3")
		w.next(old)
		if err := w.c.RequestProgress(w.ctx); err != nil {
			w.say("no progress: %v", err)
		}
		w.next(created)
		w.next(old)
		w.next(onlyDeletes)
		w.txn("two of them", nil, []clientv3.Op{clientv3.OpPut("a/2", "1"), clientv3.OpDelete("a/1"), clientv3.OpPut("c", "1")}, nil)
		w.next(old)
		w.next(onlyDeletes)
		w.next(created)
		future := w.c.Watch(w.ctx, "a/1", clientv3.WithRev(w.base+7)) // nobody gets a sign until its revision has come
		if err := w.c.RequestProgress(w.ctx); err != nil {
			w.say("no progress: %v", err)
		}
		w.put("a/1", "4")
		w.next(old)
		w.put("a/1", "5")
		w.next(old)
		w.next(future)
		if err := w.c.RequestProgress(w.ctx); err != nil {
			w.say("no progress: %v", err)
		}
		w.next(old)
		w.next(future)
		cancel()
		for range old {
		}
		w.put("a/3", "1")
		w.kv(w.c.Get(w.ctx, "a/3"))
	},
	"compaction": func(w *world) {
		for i := range 5 {
			w.put("k", fmt.Sprint(i))
		}
		w.c.Delete(w.ctx, "gone")
		w.put("gone", "1")
		_, _ = w.c.Delete(w.ctx, "gone")
		_, err := w.c.Compact(w.ctx, w.base+3)
		w.say("compacted: %v", err)
		_, err = w.c.Compact(w.ctx, w.base+2)
		w.say("compacted before: %v", err)
		_, err = w.c.Compact(w.ctx, w.base+1000)
		w.say("compacted ahead: %v", err)
		w.kv(w.c.Get(w.ctx, "k", clientv3.WithRev(w.base+2)))
		w.kv(w.c.Get(w.ctx, "k", clientv3.WithRev(w.base+3)))
		w.kv(w.c.Get(w.ctx, "gone", clientv3.WithRev(w.base+6)))
		lost := w.c.Watch(w.ctx, "k", clientv3.WithRev(w.base+1))
		w.next(lost)
		w.next(lost)
		edge := w.c.Watch(w.ctx, "", clientv3.WithPrefix(), clientv3.WithRev(w.base+3))
		w.next(edge)
		kept := w.c.Watch(w.ctx, "", clientv3.WithPrefix(), clientv3.WithRev(w.base+4))
		w.next(kept)
		_, err = w.c.Compact(w.ctx, w.base+7)
		w.say("compacted: %v", err)
		w.kv(w.c.Get(w.ctx, "k", clientv3.WithRev(w.base+7)))
		w.kv(w.c.Get(w.ctx, "", clientv3.WithPrefix()))
	},
}

// after is a timer of the bubble.
func after(d time.Duration, f func()) { time.AfterFunc(d, f) }

func tell(t *testing.T, name string, c *clientv3.Client) string {
	w := &world{T: t, c: c}
	var cancel func()
	w.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	first, err := c.Get(w.ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	w.base = first.Header.Revision
	stories[name](w)
	return w.log.String()
}

// simulated tells a story in a bubble.
func simulated(t *testing.T, name string) (log string) {
	synctest.Test(t, func(t *testing.T) {
		defer simetcd.EnterBubble()()
		s := simetcd.NewServer(7, 1, after)
		defer s.Close()
		c, err := simetcd.Dial(s, simetcd.Direct{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		log = tell(t, name, c)
	})
	return log
}

func TestBothEtcdsTellTheSameStories(t *testing.T) {
	for name := range stories {
		t.Run(name, func(t *testing.T) {
			sim := simulated(t, name)
			if testing.Verbose() {
				t.Log(sim)
			}
			real := tell(t, name, etcdtest.Start(t))
			if sim != real {
				a, b := strings.Split(sim, "\n"), strings.Split(real, "\n")
				for i := range min(len(a), len(b)) {
					if a[i] != b[i] {
						t.Fatalf("line %d\nsimulated: %s\nreal:      %s\n\nsimulated\n%s\nreal\n%s", i, a[i], b[i], sim, real)
					}
				}
				t.Fatalf("simulated\n%s\nreal\n%s", sim, real)
			}
		})
	}
}

func TestAFullEtcdLetsOnlyReadsDeletesAndKeepalivesPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer simetcd.EnterBubble()()
		s := simetcd.NewServer(7, 1, after)
		defer s.Close()
		c, err := simetcd.Dial(s, simetcd.Direct{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx := t.Context()
		g, err := c.Grant(ctx, 5)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(ctx, "a", "1"); err != nil {
			t.Fatal(err)
		}
		s.Fill(true)
		_, put := c.Put(ctx, "b", "1")
		_, txn := c.Txn(ctx).Then(clientv3.OpPut("b", "1")).Commit()
		_, grant := c.Grant(ctx, 5)
		for _, err := range []error{put, txn, grant} {
			if !errors.Is(err, rpctypes.ErrNoSpace) {
				t.Error(err)
			}
		}
		_, keep := c.KeepAliveOnce(ctx, g.ID)
		_, remove := c.Txn(ctx).Then(clientv3.OpDelete("a")).Commit()
		if keep != nil || remove != nil {
			t.Error(keep, remove)
		}
		s.Fill(false)
		if _, err := c.Put(ctx, "b", "1"); err != nil {
			t.Error(err)
		}
	})
}

func TestAWipedEtcdIsAnotherClusterAndWatchesResumeOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer simetcd.EnterBubble()()
		s := simetcd.NewServer(7, 1, after)
		defer s.Close()
		c, err := simetcd.Dial(s, simetcd.Direct{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx := t.Context()
		if _, err := c.Put(ctx, "a", "1"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ctx)
		w := c.Watch(ctx, "", clientv3.WithPrefix())
		synctest.Wait()
		s.Wipe(8, 1)
		got, err := c.Get(ctx, "a")
		if err != nil || got.Header.ClusterId != 8 || got.Header.Revision != 1 || len(got.Kvs) != 0 {
			t.Fatal(got, err)
		}
		time.Sleep(time.Minute) // the client looks for a new stream
		for i := range 3 {
			if _, err := c.Put(ctx, fmt.Sprint(i), "1"); err != nil {
				t.Fatal(err)
			}
		}
		if r := <-w; r.Header.ClusterId != 8 {
			t.Error(r)
		}
		cancel()
		for range w {
		}
	})
}

package etcd_test

import (
	"os"
	"testing"
	"time"

	"tidemark/test/etcd/etcdtest"
)

// quotaBytes lets etcd be filled in a moment, and holds what the fleet writes in minutes.
const quotaBytes = 96 << 20

// Two masters, three executors and four writers work throughout, with clocks up to two hours apart. After each story everything that was sealed is merged,
// once, and nothing is queued or held.
func TestAFleetSurvivesWhatHappensToItsEtcd(t *testing.T) {
	if os.Getenv("TIDEMARK_TEST_ETCD") == "" {
		t.Skip("runs for minutes: make test-etcd")
	}
	cluster := etcdtest.NewCluster(t, 3, quotaBytes)
	f := startFleet(t, cluster)
	for _, name := range []string{"a", "prod/b", "prod/c"} {
		f.stream(name)
	}
	f.stream("keyed", "k")
	f.during(func() { time.Sleep(time.Second) })
	f.settles(t)

	others := func(i int) (int, int) { return (i + 1) % 3, (i + 2) % 3 }
	for _, story := range []struct {
		name       string
		hurt, mend func()
		lasts      time.Duration
	}{
		{"the leader is killed and comes back", func() { cluster.Kill(cluster.Leader(t)) }, func() { cluster.Restart(t) }, ttl},
		{"a follower is cut off from its peers", func() { i, _ := others(cluster.Leader(t)); cluster.Isolate(i) }, cluster.Mend, ttl},
		{"the leader is cut off from its peers", func() { cluster.Isolate(cluster.Leader(t)) }, cluster.Mend, ttl + time.Second},
		{"the leader hears its peers, and they do not hear it", func() { cluster.Mute(cluster.Leader(t)) }, cluster.Mend, ttl + time.Second},
		{"a cut of 2.5 s spans renewals and claims", cluster.CutAnswers, cluster.Mend, 2500 * time.Millisecond},
		{"all leases are revoked at once", func() { f.revokeAll(t) }, func() {}, ttl},
		{"nobody has a majority", func() { cluster.Isolate(0); cluster.Isolate(1) }, cluster.Mend, ttl + time.Second},
		{"two of three are killed", func() { cluster.Kill(0); cluster.Kill(1) }, func() { cluster.Restart(t) }, ttl + time.Second},
		{"requests reach the members, answers do not come back", cluster.CutAnswers, cluster.Mend, ttl + time.Second},
		{"answers come, requests do not arrive", cluster.CutRequests, cluster.Mend, ttl + time.Second},
		{"every exchange takes 300 ms more", func() { cluster.Delay(300 * time.Millisecond) }, cluster.Mend, ttl + time.Second},
		{"everything is compacted while watches are cut off", func() {
			cluster.CutRequests()
			cluster.CutAnswers()
			cluster.Reset()
		}, func() {
			f.touch(t)
			cluster.Compact(t)
			cluster.Mend()
		}, 2 * time.Second},
		{"etcd is full", func() { fill(t, cluster.Admin()) }, func() {
			empty(t, cluster.Admin())
			cluster.Compact(t)
			cluster.Defragment(t)
			disarm(t, cluster.Admin())
		}, ttl},
		{"etcd is replaced by an empty one", func() { cluster.Wipe(t) }, func() {}, 2 * time.Second},
	} {
		ok := t.Run(story.name, func(t *testing.T) {
			f.during(func() {
				story.hurt()
				time.Sleep(story.lasts)
				story.mend()
			})
			f.settles(t)
		})
		if !ok {
			return
		}
	}
}

package master

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
)

// shown is a master's metrics, by name and labels.
func shown(t *testing.T, masters ...*Master) map[string]float64 {
	t.Helper()
	sum := map[string]float64{}
	for _, m := range masters {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(m)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				name := f.GetName()
				for _, l := range metric.GetLabel() {
					name += "," + l.GetName() + "=" + l.GetValue()
				}
				sum[name] += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// only picks the metrics of some names out.
func only(all map[string]float64, names ...string) map[string]float64 {
	picked := map[string]float64{}
	for name, v := range all {
		for _, want := range names {
			if name == want || strings.HasPrefix(name, want+",") {
				picked[name] = v
			}
		}
	}
	return picked
}

// The sum over all masters is the truth: when there is one, when two share, when one of them loses everything without
// ending, and when one has ended. What is not owned any more is not shown any more.
func TestTheSumOverMastersIsTheTruthAcrossATakeover(t *testing.T) {
	r := newRig(t)
	truth := map[string]float64{
		"tidemark_slots_owned": testSlots, "tidemark_tables": 0, "tidemark_shards": 0, "tidemark_shards_unknown": 0,
		"tidemark_pending_generations": 0, "tidemark_pending_bytes": 0, "tidemark_tables_paused": 0, "tidemark_tables_behind": 0,
	}
	for i := range 24 {
		properties := map[string]string{"tidemark.policy.critical_generations": "20"}
		if i%8 == 7 {
			properties["tidemark.state"] = "paused"
			truth["tidemark_tables_paused"]++
		}
		tbl, gens := r.create(fmt.Sprint("t", i), properties), i+1
		r.publish(tbl, r.seal(tbl, "a", gens))
		truth["tidemark_tables"]++
		truth["tidemark_shards"]++
		truth["tidemark_pending_generations"] += float64(gens)
		truth["tidemark_pending_bytes"] += float64(gens * 10)
		if gens >= 20 && i%8 != 7 {
			truth["tidemark_tables_behind"]++
		}
	}
	sums := slices.Collect(maps.Keys(truth))
	agree := func(what string, masters ...*Master) {
		t.Helper()
		var all, got map[string]float64
		byTable := 0.0
		r.eventually(func() bool {
			all = shown(t, masters...)
			got, byTable = only(all, sums...), 0
			for _, v := range only(all, "tidemark_table_pending_generations") {
				byTable += v
			}
			return maps.Equal(got, truth) && byTable == truth["tidemark_pending_generations"] &&
				all["tidemark_cluster_slots"] == float64(len(masters)*testSlots)
		}, func() {
			t.Fatalf("%s: the masters show %v, their tables %v; the truth is %v", what, got, byTable, truth)
		})
	}
	one, stopOne := r.run(r.config("m1"))
	agree("one master", one)
	two, _ := r.run(r.config("m2"))
	r.eventually(func() bool { return shown(t, two)["tidemark_slots_owned"] > 0 },
		func() { t.Fatal("the second master owns nothing") })
	agree("two masters", one, two)

	// The lease of the first is revoked: it finds out, others take over, and it comes back.
	grant, err := one.session.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := shown(t, one)["tidemark_master_session_reacquisitions_total"]
	if _, err := r.client.Revoke(t.Context(), grant.Lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Fatal(err)
	}
	<-grant.Context.Done()
	r.eventually(func() bool { return shown(t, one)["tidemark_master_session_reacquisitions_total"] > before },
		func() { t.Fatal("the master whose lease was revoked did not come back") })
	agree("after a lost lease", one, two)

	stopOne()
	agree("one takes over alone", two)
	left := only(shown(t, one), sums...)
	for name, v := range left {
		if v != 0 {
			t.Errorf("a master that has ended shows %s %v", name, v)
		}
	}
	if tables := only(shown(t, one), "tidemark_table_pending_bytes"); len(tables) > 1 || tables["tidemark_table_pending_bytes,table=_other"] != 0 {
		t.Errorf("a master that has ended shows tables: %v", tables)
	}
}

// eventually asks again until ok; failed ends the test.
func (r *rig) eventually(ok func() bool, failed func()) {
	r.t.Helper()
	bound := time.NewTimer(60 * time.Second) // a bound for a broken test, not a wait
	defer bound.Stop()
	again := time.NewTicker(20 * time.Millisecond) // what a master does with a change is not announced
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-bound.C:
			failed()
			return
		}
	}
}

func TestLabelsOfTablesAreBoundedAndTheRestIsSummed(t *testing.T) {
	const now = int64(1_000_000)
	top := topTables{nowMS: now}
	for i := range int64(1000) {
		e := &entry{name: fmt.Sprintf("t%04d", i), desk: desk{gens: 1, bytes: i, oldest: now - 1000*(1+i%500)}}
		top.add(e)
	}
	top.add(&entry{name: "idle"})
	got := map[string]map[string]float64{}
	top.collect(func(d *prometheus.Desc, v float64, labels ...string) {
		if got[d.String()] == nil {
			got[d.String()] = map[string]float64{}
		}
		got[d.String()][labels[0]] = v
	})
	gens, bytes, oldest := got[tableGensDesc.String()], got[tableBytesDesc.String()], got[tableOldestDesc.String()]
	// t0495 to t0499 and t0995 to t0999 wait longest; t0990 to t0999 have the most bytes; five are among both.
	if len(gens) != 2*topBy-5+1 || len(bytes) != len(gens) || len(oldest) != len(gens) {
		t.Errorf("%d tables by name", len(gens))
	}
	if gens[otherTables] != 1000-(2*topBy-5) {
		t.Errorf("others have %v generations", gens[otherTables])
	}
	sum := 0.0
	for _, v := range bytes {
		sum += v
	}
	if sum != 999*1000/2 {
		t.Errorf("all bytes are %v", sum)
	}
	if oldest["t0999"] != 500 || oldest[otherTables] != 495 {
		t.Errorf("the oldest have waited %v and, of the others, %v", oldest["t0999"], oldest[otherTables])
	}
}

func TestAMasterThatIsStartingShowsItsSessionAndEtcdsSpace(t *testing.T) {
	r := newRig(t)
	c := r.config("m1")
	c.Clock, c.Keys = clock.System(), etcd.KeysOf("never")
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	all := shown(t, m)
	if all["tidemark_master_session_held"] != 0 || all["tidemark_master_session_state,state=none"] != 1 {
		t.Errorf("%v", all)
	}
	if all["tidemark_etcd_up"] != 1 || all["tidemark_etcd_database_bytes"] == 0 {
		t.Errorf("etcd's space: %v", all)
	}
	if _, there := all["tidemark_slots_owned"]; there {
		t.Error("slots of a master that has claimed nothing")
	}
}

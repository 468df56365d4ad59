package schedule

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidemark/internal/turnset"
)

const drawnNow = int64(2_000_000_000)

func drawBacklog(t *rapid.T) Backlog {
	b := Backlog{Shards: 1, Gens: rapid.Uint64Range(0, 5000).Draw(t, "gens"), Bytes: rapid.Int64Range(0, 1<<40).Draw(t, "bytes")}
	if b.Gens > 0 && rapid.Bool().Draw(t, "timed") {
		b.OldestMS = drawnNow - rapid.Int64Range(-5000, 1_000_000).Draw(t, "age")
		if rapid.Bool().Draw(t, "exact") {
			b.ExactMS = b.OldestMS
		}
	}
	return b
}

func drawPolicy(t *rapid.T) Policy {
	p := DefaultPolicy()
	p.MaxParallelism = rapid.Int64Range(1, 16).Draw(t, "parallelism")
	p.UnitGenerations = rapid.Int64Range(1, 400).Draw(t, "unit")
	p.MaxConsecutiveMerges = rapid.Int64Range(1, 4).Draw(t, "consecutive")
	return p
}

func drawFailure(t *rapid.T) Failure {
	return Failure{
		Code: "x", Class: rapid.SampledFrom([]FailureClass{Retryable, Data, Config, Lost}).Draw(t, "class"),
		Generation: rapid.Uint64Range(0, 100).Draw(t, "generation"), Count: rapid.IntRange(1, 30).Draw(t, "count"),
		FailedMS: drawnNow - rapid.Int64Range(0, 4_000_000).Draw(t, "failed"),
	}
}

func drawTurn(t *rapid.T, shards []Shard, group int) Turn {
	var turn Turn
	if rapid.IntRange(0, 3).Draw(t, "held") == 0 {
		turn.Execution = rapid.SampledFrom([]string{"e1", "e2", "e3"}).Draw(t, "execution")
	}
	if rapid.Bool().Draw(t, "never") {
		return turn
	}
	turn.Revision = rapid.Int64Range(1, 50).Draw(t, "released")
	turn.SeenMS = drawnNow - rapid.Int64Range(0, 100_000).Draw(t, "seen")
	o := Outcome{V: 1, Result: ResultMerged, EndedMS: turn.SeenMS, More: rapid.Bool().Draw(t, "more"),
		Nothing: rapid.IntRange(0, 9).Draw(t, "nothing"), Shards: map[string]Failure{}}
	if rapid.IntRange(0, 4).Draw(t, "failing") == 0 {
		f := drawFailure(t)
		o.Failure = &f
	}
	for _, s := range shards {
		if s.Group == group && rapid.IntRange(0, 3).Draw(t, "shard failing") == 0 {
			o.Shards[s.Name] = drawFailure(t)
		}
	}
	turn.Last = &o
	return turn
}

func drawInput(t *rapid.T) Input {
	in := Input{NowMS: drawnNow, Table: "t", Policy: drawPolicy(t), Paused: rapid.IntRange(0, 9).Draw(t, "paused") == 0,
		MergesInRow: rapid.IntRange(0, 5).Draw(t, "row")}
	for i := range rapid.IntRange(0, 30).Draw(t, "shards") {
		b := drawBacklog(t)
		in.Shards = append(in.Shards, Shard{
			Name: "s" + string(rune('A'+i)), Group: rapid.IntRange(0, 15).Draw(t, "group"),
			Known: rapid.IntRange(0, 9).Draw(t, "known") > 0, Merged: rapid.Uint64Range(0, 120).Draw(t, "merged"),
			Gens: b.Gens, Bytes: b.Bytes, OldestMS: b.OldestMS, Exact: b.ExactMS != 0,
			Revision: rapid.Int64Range(1, 50).Draw(t, "revision"),
		})
	}
	for g := range in.Groups {
		in.Groups[g] = drawTurn(t, in.Shards, g)
	}
	in.Log = drawTurn(t, nil, 0)
	if rapid.Bool().Draw(t, "due") {
		in.Due = []Due{{Kind: KindCheckpoint, Score: 2, SinceMS: drawnNow - 1000}, {Kind: KindCleanup, Score: 2, SinceMS: drawnNow - 1000}}
		in.DueMS = drawnNow - rapid.Int64Range(0, 100_000).Draw(t, "due read")
	}
	if rapid.Bool().Draw(t, "requested") {
		in.Request = &Request{V: 1, Priority: rapid.SampledFrom([]string{"", "low"}).Draw(t, "priority")}
	}
	for range rapid.IntRange(0, 3).Draw(t, "ready") {
		in.Ready = append(in.Ready, Unit{V: 1, Kind: KindMerge, Table: "t", Class: Merge, Order: "00-0",
			Groups: Groups(rapid.Uint32Range(1, uint32(AllGroups)).Draw(t, "ready groups")), SinceMS: drawnNow - 77})
	}
	return in
}

// Equal facts give equal plans, in whatever order the shards come.
func TestDecideIsDeterministicAndIgnoresTheOrderOfShards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		want := Decide(in)
		shuffled := in
		shuffled.Shards = slices.Clone(in.Shards)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)).Shuffle(len(shuffled.Shards), func(i, j int) {
			shuffled.Shards[i], shuffled.Shards[j] = shuffled.Shards[j], shuffled.Shards[i]
		})
		got := Decide(shuffled)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("plans differ:\n%+v\n%+v", want, got)
		}
	})
}

func TestMoreOrOlderPendingNeverScoresLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, b := drawPolicy(t), drawBacklog(t)
		more := b
		more.Gens += rapid.Uint64Range(0, 100).Draw(t, "more gens")
		more.Bytes += rapid.Int64Range(0, 1<<30).Draw(t, "more bytes")
		if more.ExactMS > 0 {
			more.ExactMS -= rapid.Int64Range(0, 100_000).Draw(t, "older")
			more.OldestMS = more.ExactMS
		}
		if p.Score(more, drawnNow) < p.Score(b, drawnNow) {
			t.Fatalf("%+v scores less than %+v", more, b)
		}
		c1, due1 := p.Classify(b, drawnNow)
		c2, due2 := p.Classify(more, drawnNow)
		if due1 && (!due2 || c2 > c1) {
			t.Fatalf("%+v is %v/%v and %+v is %v/%v", b, c1, due1, more, c2, due2)
		}
	})
}

// A floor on the wait raises no score.
func TestABoundNeverInflatesAScore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, b := drawPolicy(t), drawBacklog(t)
		bound := b
		bound.ExactMS = 0
		ageless := Backlog{Gens: b.Gens, Bytes: b.Bytes}
		if got, want := p.Score(bound, drawnNow), p.Score(ageless, drawnNow); got != want {
			t.Fatalf("score %v with a bound, %v without an age", got, want)
		}
	})
}

// Invariant 8: within the critical class key order is the order of waits, whatever the scores.
func TestCriticalKeysAreInOrderOfWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Range(0, 9e13).Draw(t, "a"), rapid.Int64Range(0, 9e13).Draw(t, "b")
		s1, s2 := rapid.Float64Range(0, 1e18).Draw(t, "s1"), rapid.Float64Range(0, 1e18).Draw(t, "s2")
		if got, want := strings.Compare(orderOf(Critical, s1, a), orderOf(Critical, s2, b)), cmpInt(a, b); got != want {
			t.Fatalf("since %d and %d compare as %d", a, b, got)
		}
	})
}

// In the merge class a score that is twice as high comes first; within a power of two the oldest does.
func TestMergeKeysAreInOrderOfMagnitudeThenWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Range(0, 9e13).Draw(t, "a"), rapid.Int64Range(0, 9e13).Draw(t, "b")
		s1, s2 := rapid.Float64Range(1, 1e18).Draw(t, "s1"), rapid.Float64Range(1, 1e18).Draw(t, "s2")
		got := strings.Compare(orderOf(Merge, s1, a), orderOf(Merge, s2, b))
		want := cmpInt(int64(magnitude(s2)), int64(magnitude(s1)))
		if want == 0 {
			want = cmpInt(a, b)
		}
		if got != want || (s1 >= 2*s2 && got != -1) {
			t.Fatalf("scores %v, %v since %d, %d compare as %d", s1, s2, a, b, got)
		}
	})
}

func cmpInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Units are disjoint, cover free groups only, are no more than the policy allows, and cover everything that counts
// unless a decision says why not.
func TestUnitsAreDisjointFreeAndBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		p, a := Decide(in), assess(&in)
		var covered Groups
		merges := 0
		for _, u := range p.Units {
			if u.Groups&covered != 0 || u.Groups == 0 {
				t.Fatalf("unit %s overlaps %s", u.Groups, covered)
			}
			covered |= u.Groups
			if u.Groups == Log {
				if in.Log.Execution != "" {
					t.Fatal("a unit on a log whose turn is held")
				}
				continue
			}
			merges++
			if u.Groups&^a.available != 0 {
				t.Fatalf("unit %s covers groups that are not free: %s are", u.Groups, a.available)
			}
			if u.Gens == 0 || u.Shards == 0 {
				t.Fatalf("unit %s has nothing to do", u.Groups)
			}
		}
		if merges > 0 && merges+a.running > int(in.Policy.MaxParallelism) {
			t.Fatalf("%d units beside %d executions", merges, a.running)
		}
		if merges > 0 && a.countable&^covered != 0 {
			t.Fatalf("groups %s count and are in no unit", a.countable&^covered)
		}
		for _, g := range a.countable.List() {
			if d := p.Decisions[g]; d.Unit < 0 && (d.Code == CodeCaughtUp || d.Code == "") {
				t.Fatalf("group %d counts, is in no unit and has no reason", g)
			}
		}
	})
}

// Carrying a plan out and deciding again changes nothing.
func TestAPlanThatIsCarriedOutIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		in.Ready = Decide(in).Units
		again := Decide(in)
		if c := Diff(in.Ready, again.Units); !c.Empty() {
			t.Fatalf("the second pass deletes %v and puts %v", c.Delete, c.Put)
		}
	})
}

// After a change the queue holds exactly the plan's groups, once each.
func TestAChangeMakesTheQueueThePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		p := Decide(in)
		queue := map[string]Groups{}
		key := func(u Unit) string { return u.Class.String() + u.Order + u.Groups.String() }
		for _, u := range in.Ready {
			queue[key(u)] = u.Groups
		}
		c := Diff(in.Ready, p.Units)
		for _, u := range c.Delete {
			delete(queue, key(u))
		}
		for _, u := range c.Put {
			queue[key(u)] = u.Groups
		}
		want := map[string]Groups{}
		for _, u := range p.Units {
			want[key(u)] = u.Groups
		}
		if !reflect.DeepEqual(queue, want) {
			t.Fatalf("queue %v, plan %v", queue, want)
		}
	})
}

// Shards that are in backoff, unknown or running weigh nothing: had they nothing pending, the plan had the same units.
func TestAShardThatDoesNotCountChangesNoUnit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		a := assess(&in)
		idle := in
		idle.Shards = slices.Clone(in.Shards)
		for i, s := range idle.Shards {
			if code, _ := a.judge(&in, &s); code != "" {
				idle.Shards[i] = Shard{Name: s.Name, Group: s.Group, Known: true}
			}
		}
		if got, want := Decide(idle).Units, Decide(in).Units; !reflect.DeepEqual(got, want) {
			t.Fatalf("units %v with nothing pending on them, %v as they are", got, want)
		}
	})
}

// Nothing changes by itself before the time that the plan names.
func TestNothingChangesBeforeTheNamedTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		p := Decide(in)
		if p.NextMS != 0 && p.NextMS <= in.NowMS {
			t.Fatalf("to be decided again at %d and it is %d", p.NextMS, in.NowMS)
		}
		in.Ready = p.Units
		later := in
		later.NowMS += rapid.Int64Range(1, 3_000_000).Draw(t, "later")
		if p.NextMS != 0 {
			later.NowMS = min(later.NowMS, p.NextMS-1)
		}
		for _, s := range in.Shards {
			if s.OldestMS >= in.NowMS { // a time ahead of our clock is taken as now and moves along
				t.Skip()
			}
		}
		if c := Diff(in.Ready, Decide(later).Units); !c.Empty() {
			t.Fatalf("%d ms later, before %d: deletes %v, puts %v", later.NowMS-in.NowMS, p.NextMS-in.NowMS, c.Delete, c.Put)
		}
	})
}

// Explain has one code and one sentence for every shard, and agrees with the plan about what is queued.
func TestExplainAgreesWithDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		p, e := Decide(in), Explain(in)
		if len(e.Shards) != len(in.Shards) {
			t.Fatalf("%d of %d shards explained", len(e.Shards), len(in.Shards))
		}
		var pending uint64
		for i, s := range e.Shards {
			if s.Code == "" || !strings.HasSuffix(s.Reason, ".") {
				t.Fatalf("shard %s: %q %q", s.Shard, s.Code, s.Reason)
			}
			queued := s.Code == CodeScore || s.Code == CodeGens || s.Code == CodeWaited || s.Code == CodeRequested
			if queued {
				pending += in.Shards[i].Gens
				if p.Decisions[s.Group].Unit < 0 {
					t.Fatalf("shard %s is due and group %d in no unit", s.Shard, s.Group)
				}
			}
		}
		var units uint64
		for _, u := range p.Units {
			units += u.Gens
		}
		if units != pending {
			t.Fatalf("units have %d generations, explained are %d", units, pending)
		}
	})
}

func TestAnOutcomeRecordStaysBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var prev *Outcome
		for i := range rapid.IntRange(1, 6).Draw(t, "runs") {
			run := Run{Execution: "e", Incarnation: rapid.Int64Range(1, 2).Draw(t, "life"), EndedMS: int64(i) * 1000}
			for j := range rapid.IntRange(0, 90).Draw(t, "failing") {
				f := drawFailure(t)
				f.Message = strings.Repeat("ü", rapid.IntRange(0, 400).Draw(t, "message"))
				run.Failures = append(run.Failures, ShardFailure{Shard: "shard-" + strings.Repeat("x", j), Failure: f})
			}
			next := Next(prev, run)
			if len(next.Shards) > namedShardsMax {
				t.Fatalf("%d shards named", len(next.Shards))
			}
			if len(run.Failures) > namedShardsMax && next.Failure == nil {
				t.Fatal("too many failing shards to name, and the group has no failure")
			}
			b, err := next.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			back, err := ParseOutcome(b)
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := back.Marshal(); string(again) != string(b) {
				t.Fatalf("%s reads back as %s", b, again)
			}
			prev = &next
		}
	})
}

func TestBackoffIsThatOfTheDesign(t *testing.T) {
	var prev *Outcome
	want := []time.Duration{2, 2, 30, 60, 120, 240, 480, 900, 900, 900, 900, 900, 900, 900, 900, 900}
	for i, seconds := range want {
		o := Next(prev, Run{Execution: "e", EndedMS: int64(i), Failure: &Failure{Code: "x", Class: Retryable}})
		if got := o.Failure.Delay(); got != seconds*time.Second {
			t.Errorf("failure %d waits %v, want %v", i+1, got, seconds*time.Second)
		}
		if got, want := o.Failure.NeedsAttention(), i+1 >= 15; got != want {
			t.Errorf("failure %d needs attention: %v", i+1, got)
		}
		prev = &o
	}
	for _, class := range []FailureClass{Data, Config} {
		if f := (Failure{Class: class, Count: 1}); f.Delay() != time.Hour || !f.NeedsAttention() {
			t.Errorf("%s waits %v, attention %v", class, f.Delay(), f.NeedsAttention())
		}
	}
	if f := (Failure{Class: Lost, Count: 99}); f.Delay() != 0 || f.NeedsAttention() {
		t.Errorf("lost waits %v, attention %v", f.Delay(), f.NeedsAttention())
	}
}

// Clocks that differ by any amount change no backoff: times in a record are distances from its end.
func TestBackoffIgnoresTheExecutorsClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		skew := rapid.Int64Range(-4_000_000, 4_000_000).Draw(t, "skew")
		in := drawInput(t)
		skewed := in
		for g := range skewed.Groups {
			if in.Groups[g].Last == nil {
				continue
			}
			o := *in.Groups[g].Last
			o.EndedMS += skew
			if o.Failure != nil {
				f := *o.Failure
				f.FailedMS += skew
				o.Failure = &f
			}
			o.Shards = map[string]Failure{}
			for name, f := range in.Groups[g].Last.Shards {
				f.FailedMS += skew
				o.Shards[name] = f
			}
			skewed.Groups[g].Last = &o
		}
		if !reflect.DeepEqual(Decide(in), Decide(skewed)) {
			t.Fatal("plans differ")
		}
	})
}

func TestGroupsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Groups(rapid.Uint32Range(1, uint32(Log)).Draw(t, "groups"))
		back, err := turnset.Parse(g.String())
		if err != nil || back != g {
			t.Fatalf("%s reads back as %s, %v", g, back, err)
		}
		b, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		var decoded Groups
		if err := json.Unmarshal(b, &decoded); err != nil || decoded != g {
			t.Fatalf("%s decodes as %s, %v", b, decoded, err)
		}
	})
}

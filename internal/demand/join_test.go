package demand

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reported is an event about one of two shards.
type reported struct {
	Shard string
	Event Event
}

// drawMark keeps bytes and rows a function of generation and epoch, as they are in a real shard.
func drawMark(t *rapid.T, label string, gens *rapid.Generator[uint64]) *Mark {
	if !rapid.Bool().Draw(t, label+" reported") {
		return nil
	}
	m := Mark{Gen: gens.Draw(t, label), Epoch: rapid.Uint64Range(1, 3).Draw(t, label+" epoch")}
	m.Bytes, m.Rows = int64(m.Gen*1000+m.Epoch), int64(m.Gen*10+m.Epoch)
	return &m
}

func drawEvents(t *rapid.T, window uint64) []reported {
	base := rapid.Uint64Range(0, 1<<40).Draw(t, "base")
	marks := rapid.Uint64Range(base, base+window)
	gens := rapid.Uint64Range(base+1, base+window)
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) reported {
		incarnation := rapid.Int64Range(1, 2).Draw(t, "incarnation")
		ev := Event{
			TableID:     fmt.Sprintf("table-%d", incarnation),
			Incarnation: incarnation,
			Sealed:      drawMark(t, "sealed", marks),
			Merged:      drawMark(t, "merged", marks),
			Source:      rapid.SampledFrom([]Source{Writer, Executor, Scan}).Draw(t, "source"),
			AtMS:        rapid.Int64Range(1, 1000).Draw(t, "at"),
		}
		ev.SealedTimes = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) SealTime {
			return SealTime{Gen: gens.Draw(t, "gen"), MS: rapid.Int64Range(1, 50).Draw(t, "ms")}
		}), 0, 4).Draw(t, "times")
		return reported{Shard: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "shard"), Event: ev}
	}), 0, 24).Draw(t, "events")
}

func fold(events []reported) map[string]Record {
	records := map[string]Record{}
	for _, e := range events {
		records[e.Shard], _ = Join(records[e.Shard], e.Event)
	}
	return records
}

func sameDemand(a, b map[string]Record) bool {
	return maps.EqualFunc(a, b, Record.Equal)
}

// Invariant 4. All generations lie within 64 of each other, so no more than 64 can be pending in any order.
func TestEveryOrderAndRepetitionOfTheSameEventsFoldsToTheSameRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := drawEvents(t, timesMax)
		want := fold(events)

		repeats := rapid.SliceOfN(rapid.IntRange(0, max(0, len(events)-1)), 0, len(events)).Draw(t, "repeats")
		again := slices.Clone(events)
		for _, i := range repeats {
			again = append(again, events[i])
		}
		again = rapid.Permutation(again).Draw(t, "order")
		if got := fold(again); !sameDemand(got, want) {
			t.Fatalf("another order folds to\n%+v, want\n%+v", got, want)
		}
	})
}

// Invariant 4, beyond 64 pending generations: marks, bytes and rows still do not depend on the order.
func TestMarksDoNotDependOnTheOrderHoweverMuchIsPending(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := drawEvents(t, 5000)
		want := fold(events)
		got := fold(rapid.Permutation(events).Draw(t, "order"))
		for shard, w := range want {
			g := got[shard]
			if g.Incarnation != w.Incarnation || !sameMark(g.Sealed, w.Sealed) || !sameMark(g.Merged, w.Merged) {
				t.Fatalf("%s: another order folds to %+v, want %+v", shard, g, w)
			}
		}
	})
}

func TestFoldingOntoStoredRecordsEqualsFoldingInMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := drawEvents(t, 200)
		inMemory, stored := map[string]Record{}, map[string][]byte{}
		for _, e := range events {
			inMemory[e.Shard], _ = Join(inMemory[e.Shard], e.Event)

			var r Record
			if value := stored[e.Shard]; value != nil {
				var err error
				if r, err = Parse(value); err != nil {
					t.Fatal(err)
				}
			}
			if r, changed := Join(r, e.Event); changed {
				stored[e.Shard] = r.Encode()
			}
		}
		for shard, want := range inMemory {
			got, err := Parse(stored[shard])
			if err != nil || !got.Equal(want) || got.Source != want.Source || got.UpdatedMS != want.UpdatedMS {
				t.Fatalf("%s: rebuilt %+v (%v), folded %+v", shard, got, err, want)
			}
		}
	})
}

// Invariant 3.
func TestAMarkOfAnIncarnationNeverFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := map[string]Record{}
		for _, e := range drawEvents(t, 1000) {
			before := records[e.Shard]
			after, _ := Join(before, e.Event)
			if after.Incarnation < before.Incarnation {
				t.Fatalf("incarnation fell from %d to %d", before.Incarnation, after.Incarnation)
			}
			if after.Incarnation == before.Incarnation {
				for _, m := range [][2]*Mark{{before.Sealed, after.Sealed}, {before.Merged, after.Merged}} {
					if m[0] != nil && (m[1] == nil || m[1].Compare(*m[0]) < 0) {
						t.Fatalf("mark fell from %+v to %+v", m[0], m[1])
					}
				}
			}
			records[e.Shard] = after
		}
	})
}

func TestJoiningWhatIsKnownChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := drawEvents(t, timesMax)
		records := fold(events)
		for _, e := range events {
			r := records[e.Shard]
			if again, changed := Join(r, e.Event); changed {
				t.Fatalf("%+v changed %+v to %+v", e.Event, r, again)
			}
		}
	})
}

// A shard with any number of generations pending, each sealed later than the one before: an exact age is the true
// one, and any other is a floor of it.
func TestAgesAreSoundHoweverMuchIsPending(t *testing.T) {
	const now = 1_000_000_000
	rapid.Check(t, func(t *rapid.T) {
		last := rapid.Uint64Range(1, 500).Draw(t, "last")
		sealedMS := make([]int64, last+1)
		for g := range sealedMS {
			sealedMS[g] = 1 + int64(g)*1000 + rapid.Int64Range(0, 999).Draw(t, "ms")
		}
		sealed := func(g uint64) Event {
			return Event{TableID: "t", Incarnation: 1, Sealed: &Mark{Gen: g, Epoch: 1}, SealedTimes: []SealTime{{g, sealedMS[g]}}}
		}
		var events []Event
		for g := uint64(1); g <= last; g++ {
			events = append(events, sealed(g))
		}
		for _, g := range rapid.SliceOfN(rapid.Uint64Range(0, last), 1, 10).Draw(t, "merged") {
			ev := Event{TableID: "t", Incarnation: 1, Merged: &Mark{Gen: g, Epoch: 1}}
			if g < last && rapid.Bool().Draw(t, "brings next") {
				ev.SealedTimes = []SealTime{{g + 1, sealedMS[g+1]}}
			}
			events = append(events, ev)
		}
		var r Record
		for _, ev := range rapid.Permutation(events).Draw(t, "order") {
			r, _ = Join(r, ev)
			if len(r.SealedTimes) > timesMax {
				t.Fatalf("%d seal times kept", len(r.SealedTimes))
			}
			pending, _ := r.Pending()
			if pending == 0 {
				continue
			}
			age := r.Age(now)
			truth := time.Duration(now-sealedMS[r.Merged.Gen+1]) * time.Millisecond
			if age.Exact && age.Wait != truth || age.Wait > truth {
				t.Fatalf("age %+v, but the oldest pending generation waits %v", age, truth)
			}
		}
	})
}

func TestTheOldestPendingTimeIsKnownAfter63SingleMergesWithThousandsPending(t *testing.T) {
	var r Record
	for g := uint64(1); g <= 5000; g++ {
		r, _ = Join(r, Event{TableID: "t", Incarnation: 1, Sealed: &Mark{Gen: g, Epoch: 1}, SealedTimes: []SealTime{{g, int64(g) * 10}}})
	}
	for merged := uint64(0); merged < lowestTimesMax; merged++ {
		r, _ = Join(r, Event{TableID: "t", Incarnation: 1, Merged: &Mark{Gen: merged, Epoch: 1}})
		if age := r.Age(100_000); !age.Exact || age.Wait != time.Duration(100_000-10*(merged+1))*time.Millisecond {
			t.Fatalf("after merging %d: %+v", merged, age)
		}
	}
	r, _ = Join(r, Event{TableID: "t", Incarnation: 1, Merged: &Mark{Gen: 63, Epoch: 1}})
	if age := r.Age(100_000); age.Exact || !age.Known || age.Wait != 50*time.Second {
		t.Fatalf("after one more merge only the newest bounds the age: %+v", age)
	}
	// The executor read generation 64 while it merged 63, and brings its time along.
	r, _ = Join(r, Event{TableID: "t", Incarnation: 1, Merged: &Mark{Gen: 63, Epoch: 1}, SealedTimes: []SealTime{{64, 640}}})
	if age := r.Age(100_000); !age.Exact || age.Wait != 99_360*time.Millisecond {
		t.Fatalf("with the time the executor brought: %+v", age)
	}
}

func TestMergedUnderAnEarlierEpochLeavesTheRestPendingInEveryOrder(t *testing.T) {
	merged := Event{TableID: "t", Incarnation: 1, Merged: &Mark{Gen: 40, Epoch: 1, Bytes: 400, Rows: 4}}
	sealed := Event{TableID: "t", Incarnation: 1, Sealed: &Mark{Gen: 60, Epoch: 2, Bytes: 1000, Rows: 10}}
	for _, order := range [][]Event{{merged, sealed}, {sealed, merged}} {
		var r Record
		for _, ev := range order {
			r, _ = Join(r, ev)
		}
		if n, known := r.Pending(); n != 20 || !known || r.PendingBytes() != 600 || r.PendingRows() != 6 {
			t.Errorf("pending %d (known %v), %d bytes, %d rows", n, known, r.PendingBytes(), r.PendingRows())
		}
	}
}

// Invariant 5.
func TestAnAbsentMarkIsUnknownAndNotZero(t *testing.T) {
	r, _ := Join(Record{}, Event{TableID: "t", Incarnation: 1, Sealed: &Mark{Gen: 9, Epoch: 1}, SealedTimes: []SealTime{{9, 5}}})
	if n, known := r.Pending(); known || n != 0 {
		t.Errorf("merged is absent, yet pending is %d", n)
	}
	if age := r.Age(100); age.Known {
		t.Errorf("merged is absent, yet the age is %+v", age)
	}
	r, _ = Join(r, Event{TableID: "t", Incarnation: 1, Merged: &Mark{}})
	if n, known := r.Pending(); !known || n != 9 {
		t.Errorf("a reported zero is known: pending %d, known %v", n, known)
	}
}

func TestMergedAboveSealedIsNothingPending(t *testing.T) {
	r, _ := Join(Record{}, Event{TableID: "t", Incarnation: 1, Sealed: &Mark{Gen: 9}, Merged: &Mark{Gen: 12, Bytes: 7, Rows: 7}})
	if n, known := r.Pending(); n != 0 || !known || r.PendingBytes() != 0 || r.PendingRows() != 0 || r.Age(100).Known {
		t.Errorf("pending %d (known %v) of %+v", n, known, r)
	}
}

func TestANewerIncarnationReplacesTheRecordAndAnOlderOneIsDropped(t *testing.T) {
	first, _ := Join(Record{}, Event{TableID: "old", Incarnation: 1, Sealed: &Mark{Gen: 9}, Merged: &Mark{Gen: 8}})
	second, changed := Join(first, Event{TableID: "new", Incarnation: 2, Sealed: &Mark{Gen: 1}})
	if !changed || second.TableID != "new" || second.Sealed.Gen != 1 || second.Merged != nil {
		t.Fatalf("replaced by %+v", second)
	}
	again, changed := Join(second, Event{TableID: "old", Incarnation: 1, Sealed: &Mark{Gen: 100}})
	if changed || !again.Equal(second) {
		t.Fatalf("an older incarnation changed it to %+v", again)
	}
}

func TestASealTimeInTheFutureCountsAsNow(t *testing.T) {
	r, _ := Join(Record{}, Event{TableID: "t", Incarnation: 1, Sealed: &Mark{Gen: 1}, Merged: &Mark{}, SealedTimes: []SealTime{{1, 500}}})
	if age := r.Age(100); !age.Exact || age.Wait != 0 {
		t.Errorf("%+v", age)
	}
}

func BenchmarkFold(b *testing.B) {
	b.ReportAllocs()
	var r Record
	for i := 0; b.Loop(); i++ {
		g := uint64(i + 1)
		ev := Event{TableID: "t", Incarnation: 1, Sealed: &Mark{Gen: g}, SealedTimes: []SealTime{{g, int64(g)}}}
		if i%2 == 1 {
			ev = Event{TableID: "t", Incarnation: 1, Merged: &Mark{Gen: g - 10}}
		}
		r, _ = Join(r, ev)
	}
}

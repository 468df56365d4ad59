package etcd

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEveryKeyIsReadBackWhateverTheNamesContain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := KeysOf(rapid.StringN(1, 20, -1).Draw(t, "cluster"))
		table := rapid.StringN(1, 30, -1).Draw(t, "table")
		shard := rapid.StringN(1, 30, -1).Draw(t, "shard")
		slot := rapid.IntRange(0, 4095).Draw(t, "slot")
		turn := rapid.IntRange(0, LogTurn).Draw(t, "turn")

		if s, tb, sh, err := k.ParseDemand(k.Demand(slot, table, shard)); err != nil || s != slot || tb != table || sh != shard {
			t.Fatalf("demand: %d %q %q %v", s, tb, sh, err)
		}
		if s, tb, err := k.ParseTable(k.Table(slot, table)); err != nil || s != slot || tb != table {
			t.Fatalf("table: %d %q %v", s, tb, err)
		}
		if s, tb, err := k.ParseRequests(k.Requests(slot, table)); err != nil || s != slot || tb != table {
			t.Fatalf("request: %d %q %v", s, tb, err)
		}
		if tb, g, err := k.ParseTurn(k.Turn(table, turn)); err != nil || g != turn || tb != table {
			t.Fatalf("turn: %q %d %v", tb, g, err)
		}
		if tb, g, err := k.ParseOutcome(k.Outcome(table, turn)); err != nil || g != turn || tb != table {
			t.Fatalf("outcome: %q %d %v", tb, g, err)
		}
		if s, err := k.ParseSlot(k.Slot(slot)); err != nil || s != slot {
			t.Fatalf("slot: %d %v", s, err)
		}
		if n, err := k.ParseMaster(k.Master(shard)); err != nil || n != shard {
			t.Fatalf("master: %q %v", n, err)
		}
		if n, err := k.ParseExecutor(k.Executor(shard)); err != nil || n != shard {
			t.Fatalf("executor: %q %v", n, err)
		}
		if n, err := k.ParseDrain(k.Drain(shard)); err != nil || n != shard {
			t.Fatalf("drain: %q %v", n, err)
		}
		if n, err := k.ParseProgress(k.Progress(shard)); err != nil || n != shard {
			t.Fatalf("progress: %q %v", n, err)
		}
		turns := TurnSet(rapid.Uint32Range(1, uint32(AllGroups)).Draw(t, "turns"))
		if rapid.Bool().Draw(t, "log") {
			turns = LogOnly
		}
		ready := ReadyKey{
			Class: rapid.IntRange(0, 3).Draw(t, "class"),
			Order: rapid.StringMatching(`[0-9a-f-]{1,33}`).Draw(t, "order"),
			Table: table, Turns: turns,
		}
		if r, err := k.ParseReady(k.Ready(ready)); err != nil || r != ready {
			t.Fatalf("ready: %+v %v", r, err)
		}
	})
}

func TestReadyKeysSortByClassThenOrder(t *testing.T) {
	k := KeysOf(DefaultCluster)
	want := []string{
		k.Ready(ReadyKey{0, "0001", "z", AllGroups}),
		k.Ready(ReadyKey{0, "0002", "a", AllGroups}),
		k.Ready(ReadyKey{1, "0000", "a", TurnsOf(3)}),
		k.Ready(ReadyKey{1, "0000", "b", TurnsOf(0)}),
		k.Ready(ReadyKey{2, "0000", "a", LogOnly}),
	}
	if got := slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		t.Fatalf("order of service:\n%s", strings.Join(got, "\n"))
	}
}

// The layout is what processes of different versions share: a change here is a change of every running cluster.
func TestTheLayoutIsTheOneWrittenDown(t *testing.T) {
	k := KeysOf("prod")
	for got, want := range map[string]string{
		k.Cluster():                       "/tidemark/prod/cluster",
		k.Master("m-1"):                   "/tidemark/prod/masters/m-1",
		k.Slot(7):                         "/tidemark/prod/slots/7",
		k.SlotEpoch(7):                    "/tidemark/prod/slot-epochs/7",
		k.Table(7, "a/b"):                 "/tidemark/prod/tables/7/a%2Fb",
		k.DefaultPolicy():                 "/tidemark/prod/policies/_default",
		k.Demand(7, "a/b", "bucket-0007"): "/tidemark/prod/demand/7/a%2Fb/bucket-0007",
		k.Ready(ReadyKey{0, "00f3", "a/b", 0x00ff}): "/tidemark/prod/ready/0/00f3/a%2Fb/00ff",
		k.Ready(ReadyKey{2, "00f3", "t", LogOnly}):  "/tidemark/prod/ready/2/00f3/t/log",
		k.Turn("a/b", 3):       "/tidemark/prod/turns/a%2Fb/03",
		k.Turn("a/b", LogTurn): "/tidemark/prod/turns/a%2Fb/log",
		k.Progress("e1"):       "/tidemark/prod/progress/e1",
		k.Outcome("a/b", 15):   "/tidemark/prod/outcomes/a%2Fb/15",
		k.Executor("x-1"):      "/tidemark/prod/executors/x-1",
		k.Drain("x-1"):         "/tidemark/prod/drains/x-1",
		k.Requests(7, "a/b"):   "/tidemark/prod/requests/7/a%2Fb",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// The hashes are part of the layout as well.
func TestSlotsAndGroupsNeverMove(t *testing.T) {
	got := []int{SlotOf("flights", 64), SlotOf("prod/events", 64), GroupOf("rollout-0"), GroupOf("bucket-0007")}
	want := []int{9, 23, 6, 12}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func FuzzParsersRefuseWhatTheyWouldNotWrite(f *testing.F) {
	k := KeysOf("c")
	f.Add(k.Demand(1, "t", "s"))
	f.Add(k.Ready(ReadyKey{0, "1", "t", AllGroups}))
	f.Add(k.Turn("t", LogTurn))
	f.Add(k.Ready(ReadyKey{0, "%41", "t", AllGroups}))
	f.Fuzz(func(t *testing.T, key string) {
		if slot, table, shard, err := k.ParseDemand(key); err == nil {
			if k.Demand(slot, table, shard) != key {
				t.Fatalf("demand key %q is not canonical", key)
			}
		} else if !errors.Is(err, ErrKey) {
			t.Fatal(err)
		}
		if r, err := k.ParseReady(key); err == nil && k.Ready(r) != key {
			t.Fatalf("ready key %q is not canonical", key)
		}
		if table, turn, err := k.ParseTurn(key); err == nil && k.Turn(table, turn) != key {
			t.Fatalf("turn key %q is not canonical", key)
		}
		if slot, err := k.ParseSlot(key); err == nil && k.Slot(slot) != key {
			t.Fatalf("slot key %q is not canonical", key)
		}
	})
}

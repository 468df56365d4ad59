package schedule

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// The scripts under testdata/stories are stories: tables with shards, executors that claim and release, and time that passes.
// Every change of a demand record and every release gets the next revision, as in etcd.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		w := &world{now: storyStart, tables: map[string]*Input{}, held: map[string]Unit{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return w.run(t, d)
		})
	})
}

const storyStart = int64(1_000_000_000)

type world struct {
	now      int64
	revision int64
	tables   map[string]*Input
	held     map[string]Unit // running executions
}

func (w *world) run(t *testing.T, d *datadriven.TestData) string {
	args := map[string]string{}
	var words []string
	for _, a := range d.CmdArgs {
		switch len(a.Vals) {
		case 0:
			words = append(words, a.Key)
		case 1:
			args[a.Key] = a.Vals[0]
		default:
			t.Fatalf("%s: %s has %d values", d.Pos, a.Key, len(a.Vals))
		}
	}
	word := func(i int) string {
		if i >= len(words) {
			t.Fatalf("%s: %s needs more words", d.Pos, d.Cmd)
		}
		return words[i]
	}
	flag := func(name string) bool { return slices.Contains(words, name) }
	switch d.Cmd {
	case "table":
		return w.table(word(0), args)
	case "shard":
		w.shard(t, word(0), word(1), args, flag("floor"), flag("unknown"))
	case "due":
		in := w.tables[word(0)]
		in.DueMS = w.now
		if !flag("also") {
			in.Due = nil
		}
		if !flag("none") {
			in.Due = append(in.Due, Due{Kind: Kind(word(1)), Score: number(args["score"], 1), SinceMS: w.now - age(args["age"]),
				Critical: flag("critical"), Note: "as the story says"})
		}
	case "pause", "resume":
		w.tables[word(0)].Paused = d.Cmd == "pause"
	case "request":
		w.tables[word(0)].Request = &Request{V: 1, RequestedMS: w.now, Priority: args["priority"], By: "somebody"}
	case "pass":
		w.now += age(args["time"])
		if args["time"] == "" {
			w.now += age(word(0))
		}
	case "queue":
		return w.queue()
	case "claim":
		return w.claim(word(0), args)
	case "release":
		return w.release(word(0), args, flag("more"))
	case "vanish":
		return w.vanish(word(0))
	case "decide":
		return w.decide(word(0))
	case "explain":
		return w.explain(word(0))
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return ""
}

func (w *world) table(name string, args map[string]string) string {
	p, err := DefaultPolicy().With(args)
	if err != nil {
		return err.Error()
	}
	w.tables[name] = &Input{Table: name, Policy: p}
	return ""
}

// shard sets one demand record. Its group is given, so that stories choose who shares a turn with whom.
func (w *world) shard(t *testing.T, table, name string, args map[string]string, floor, unknown bool) {
	in := w.tables[table]
	w.revision++
	s := Shard{Name: name, Known: !unknown, Exact: !floor, Revision: w.revision,
		Group: int(number(args["group"], 0)), Merged: uint64(number(args["merged"], 0)), Gens: uint64(number(args["gens"], 0))}
	if b, ok := args["bytes"]; ok {
		n, err := sized.parse(b)
		if err != nil {
			t.Fatal(err)
		}
		s.Bytes = n
	}
	if s.Gens > 0 {
		s.OldestMS = w.now - age(args["age"])
	}
	for i := range in.Shards {
		if in.Shards[i].Name == name {
			in.Shards[i] = s
			return
		}
	}
	in.Shards = append(in.Shards, s)
}

// settle plans every table and carries the plan out, as the owner does after every event.
func (w *world) settle() map[string]Plan {
	plans := map[string]Plan{}
	for name, in := range w.tables {
		in.NowMS = w.now
		p := Decide(*in)
		change := Diff(in.Ready, p.Units)
		in.Ready = slices.DeleteFunc(in.Ready, func(u Unit) bool {
			return slices.ContainsFunc(append(change.Delete, change.Put...), func(c Unit) bool { return c.Groups == u.Groups })
		})
		in.Ready = append(in.Ready, change.Put...)
		plans[name] = p
	}
	return plans
}

// ordered is the ready queue in key order.
func (w *world) ordered() []Unit {
	var all []Unit
	for _, in := range w.tables {
		all = append(all, in.Ready...)
	}
	key := func(u Unit) string { return fmt.Sprintf("%d/%s/%s/%s", u.Class, u.Order, u.Table, u.Groups) }
	sort.Slice(all, func(i, j int) bool { return key(all[i]) < key(all[j]) })
	return all
}

func (w *world) queue() string {
	w.settle()
	var b strings.Builder
	for _, u := range w.ordered() {
		fmt.Fprintf(&b, "%-11s %s %s %s gens=%d waited=%s: %s\n", u.Class, u.Kind, u.Table, u.Groups, u.Gens,
			since(u.SinceMS, w.now), u.Reason)
	}
	if b.Len() == 0 {
		return "empty"
	}
	return b.String()
}

// claim takes the head of the queue, or of one table's part of it.
func (w *world) claim(execution string, args map[string]string) string {
	w.settle()
	for _, u := range w.ordered() {
		if table, ok := args["table"]; ok && u.Table != table {
			continue
		}
		in := w.tables[u.Table]
		in.Ready = slices.DeleteFunc(in.Ready, func(r Unit) bool { return r.Groups == u.Groups })
		for _, turn := range w.turns(u) {
			turn.Execution, turn.Executor = execution, "x1"
		}
		if u.Groups == Log {
			in.MergesInRow = 0
		} else {
			in.MergesInRow++
		}
		w.held[execution] = u
		return fmt.Sprintf("%s %s %s", u.Kind, u.Table, u.Groups)
	}
	return "nothing to claim"
}

func (w *world) turns(u Unit) []*Turn {
	in := w.tables[u.Table]
	if u.Groups == Log {
		return []*Turn{&in.Log}
	}
	var out []*Turn
	for _, g := range u.Groups.List() {
		out = append(out, &in.Groups[g])
	}
	return out
}

// release ends an execution. Demand is not changed by it: a later "shard" is the published mark.
func (w *world) release(execution string, args map[string]string, more bool) string {
	u := w.held[execution]
	delete(w.held, execution)
	w.revision++
	f := Failure{Code: args["code"], Class: FailureClass(args["failed"]), Message: "as the story says",
		Generation: uint64(number(args["generation"], 0))}
	for i, turn := range w.turns(u) {
		run := Run{Execution: execution, Executor: "x1", Incarnation: 1, Kind: u.Kind, EndedMS: w.now, More: more,
			Did: args["failed"] == "" && args["nothing"] == ""}
		for _, s := range w.tables[u.Table].Shards {
			if s.Name == args["unseen"] { // its demand has changed since the execution read it
				run.DemandRevision = s.Revision - 1
			}
		}
		switch shard := args["shard"]; {
		case args["failed"] == "":
		case shard == "":
			run.Failure = &f
		default:
			for _, s := range w.tables[u.Table].Shards {
				if s.Name == shard && u.Groups.Has(s.Group) && u.Groups.List()[i] == s.Group {
					run.Failures = []ShardFailure{{Shard: shard, Failure: f}}
				}
			}
			run.Did = run.Failures == nil || args["others"] != "idle"
		}
		next := Next(turn.Last, run)
		*turn = Turn{Last: &next, Revision: w.revision, SeenMS: w.now}
	}
	return ""
}

func (w *world) vanish(execution string) string {
	u := w.held[execution]
	delete(w.held, execution)
	w.revision++
	for _, turn := range w.turns(u) {
		next := Vanished(turn.Last, 1, u.Kind, execution, "x1", w.now)
		*turn = Turn{Last: &next, Revision: w.revision, SeenMS: w.now}
	}
	return ""
}

func (w *world) decide(table string) string {
	p := w.settle()[table]
	var b strings.Builder
	verdict := "tail"
	if p.Due {
		verdict = p.Class.String()
	}
	fmt.Fprintf(&b, "gens=%d score=%.2f %s", p.Backlog.Gens, p.Score, verdict)
	if p.ScanSoon {
		b.WriteString(" scan-soon")
	}
	if p.Served {
		b.WriteString(" served")
	}
	if p.NextMS > 0 {
		fmt.Fprintf(&b, " again-in=%s", time.Duration(p.NextMS-w.now)*time.Millisecond)
	}
	b.WriteString("\n")
	for _, u := range p.Units {
		fmt.Fprintf(&b, "unit %s %s gens=%d\n", u.Kind, u.Groups, u.Gens)
	}
	return b.String()
}

func (w *world) explain(table string) string {
	w.settle()
	w.tables[table].NowMS = w.now
	e := Explain(*w.tables[table])
	var b strings.Builder
	for _, s := range e.Shards {
		fmt.Fprintf(&b, "%s: %s: %s\n", s.Shard, s.Code, s.Reason)
	}
	fmt.Fprintf(&b, "log: %s: %s\n", e.Log.Code, e.Log.Reason)
	for _, a := range e.Attention {
		fmt.Fprintf(&b, "attention: %s\n", a)
	}
	return b.String()
}

func age(text string) int64 {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d.Milliseconds()
}

func number(text string, otherwise float64) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return otherwise
	}
	return n
}

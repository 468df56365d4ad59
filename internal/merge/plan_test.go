package merge

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"tidemark/internal/shardmanifest"
)

// testdata/plan holds backlogs as lines "shard mark generation[@sealed ms][:bytes] …" and what the plan makes of them.
func TestPlan(t *testing.T) {
	datadriven.RunTest(t, "testdata/plan", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "commit":
			l := limits{bytes: 1 << 40, generations: 1 << 20}
			d.MaybeScanArgs(t, "bytes", &l.bytes)
			d.MaybeScanArgs(t, "generations", &l.generations)
			now, later := nextCommit(backlogs(t, d.Input), l)
			return "now   " + describe(now) + "\nlater " + describe(later) + "\n"
		case "commits":
			l := limits{bytes: 1 << 40, generations: 1 << 20}
			d.MaybeScanArgs(t, "bytes", &l.bytes)
			d.MaybeScanArgs(t, "generations", &l.generations)
			var b strings.Builder
			now, later := []backlog(nil), backlogs(t, d.Input)
			for n := 1; len(later) > 0; n++ {
				now, later = nextCommit(later, l)
				fmt.Fprintf(&b, "%d: %s\n", n, describe(now))
			}
			return b.String()
		case "spans":
			var most int
			var target int64
			d.ScanArgs(t, "most", &most)
			d.ScanArgs(t, "target", &target)
			var b strings.Builder
			for _, s := range spans(backlogs(t, d.Input), most, target) {
				b.WriteString(describe(s) + "\n")
			}
			return b.String()
		case "fan-in":
			var share int64
			d.ScanArgs(t, "share", &share)
			var estimates []int64
			for _, f := range strings.Fields(d.Input) {
				estimates = append(estimates, number(t, f))
			}
			return fmt.Sprintln(fanIn(estimates, share), "of", len(estimates))
		case "lanes":
			var budget, most int64
			d.ScanArgs(t, "mib", &budget)
			d.ScanArgs(t, "most", &most)
			return fmt.Sprintln(lanes(budget<<20, int(most)))
		case "before":
			var g int64
			d.ScanArgs(t, "generation", &g)
			return describe([]backlog{backlogs(t, d.Input)[0].before(uint64(g))}) + "\n"
		case "follow":
			b := backlogs(t, d.Input)[0]
			if _, err := newBacklog(b.shard, b.mark, b.generations); err != nil {
				return err.Error() + "\n"
			}
			return "ok\n"
		}
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	})
}

func number(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func backlogs(t *testing.T, input string) []backlog {
	var out []backlog
	for _, line := range strings.Split(strings.TrimSpace(input), "\n") {
		fields := strings.Fields(line)
		b := backlog{shard: fields[0], mark: uint64(number(t, fields[1]))}
		for _, f := range fields[2:] {
			g := shardmanifest.Generation{Bytes: 10}
			if head, tail, ok := strings.Cut(f, ":"); ok {
				f, g.Bytes = head, number(t, tail)
			}
			if head, tail, ok := strings.Cut(f, "@"); ok {
				f, g.SealedMS = head, number(t, tail)
			}
			g.Number = uint64(number(t, f))
			b.generations = append(b.generations, g)
		}
		out = append(out, b)
	}
	return out
}

func describe(backlogs []backlog) string {
	var parts []string
	for _, b := range backlogs {
		switch len(b.generations) {
		case 0:
			parts = append(parts, fmt.Sprintf("%s none above %d", b.shard, b.mark))
		case 1:
			parts = append(parts, fmt.Sprintf("%s %d", b.shard, b.mark+1))
		default:
			parts = append(parts, fmt.Sprintf("%s %d-%d", b.shard, b.mark+1, b.through()))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

package shardmanifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestStories replays the scripts under testdata on the pure core: who claims, what arrives and what is lost, and what
// the newest manifest then says.
//
//	claim W             W claims the shard
//	attempt W           W starts a seal; its put is on its way
//	arrive W [lost]     the put arrives; lost: its answer does not
//	settle W            what Settle says, from the newest manifest
//	trim N              generations up to N are merged and trimmed
//	storm N             N other writers claim, one after the other
//	clean               what is not above the boundary is deleted
//	show                the newest manifest
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		m := newModel()
		writers := map[string]*modelWriter{}
		puts := map[string]*modelPut{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Cmd + " " + argsText(d) + "\n" + d.Input) {
				if words := strings.Fields(line); len(words) > 0 && words[0] != "story" {
					fmt.Fprintln(&out, m.step(t, writers, puts, words))
				}
			}
			return out.String()
		})
	})
}

func argsText(d *datadriven.TestData) string {
	var words []string
	for _, a := range d.CmdArgs {
		words = append(words, a.Key)
	}
	return strings.Join(words, " ")
}

func (m *model) step(t *testing.T, writers map[string]*modelWriter, puts map[string]*modelPut, words []string) string {
	var n uint64
	arg := ""
	if len(words) > 1 {
		arg = words[1]
		fmt.Sscan(arg, &n)
	}
	w := writers[arg]
	switch words[0] {
	case "claim":
		writers[arg] = m.claim(t, arg)
		return fmt.Sprintf("%s holds epoch %d at version %d", arg, m.newest.Epoch, m.newest.Version)
	case "attempt":
		if err := m.attempt(w); err != nil {
			return fmt.Sprintf("%s: %v", arg, err)
		}
		puts[arg] = m.inFlight[len(m.inFlight)-1]
		return fmt.Sprintf("%s puts version %d with generation %d", arg, w.attempt.Version, w.attempt.Generation)
	case "arrive":
		p := puts[arg]
		m.arrive(t, p, len(words) > 2)
		return fmt.Sprintf("%s is told %s of version %d", arg, p.attempt.Answer, p.manifest.Version)
	case "settle":
		return fmt.Sprintf("%s: %s", arg, m.settle(t, w))
	case "trim":
		m.direct(t, trimEvent{merged: n})
	case "storm":
		for range n {
			m.claim(t, m.name("other"))
		}
	case "clean":
		m.clean()
	case "show":
	default:
		t.Fatalf("unknown step %q", words[0])
	}
	return fmt.Sprintf("version %d boundary %d epoch %d by %s, sealed through %d, trimmed through %d",
		m.newest.Version, m.newest.Boundary, m.newest.Epoch, m.newest.WriterID, m.newest.SealedThrough, m.newest.TrimmedThrough)
}

package maintain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestWhatIsDue replays testdata/due. A case is
//
//	due version=V checkpoint=V every=N untrimmed=N most=N since=DURATION
//
// of which what is left out is 0, without a checkpoint, an interval of 10, and an hour since the last cleanup.
func TestWhatIsDue(t *testing.T) {
	datadriven.RunTest(t, "testdata/due", func(t *testing.T, d *datadriven.TestData) string {
		s := State{Checkpoint: -1, CheckpointEvery: 10}
		since := "1h"
		d.MaybeScanArgs(t, "version", &s.Version)
		d.MaybeScanArgs(t, "checkpoint", &s.Checkpoint)
		d.MaybeScanArgs(t, "every", &s.CheckpointEvery)
		d.MaybeScanArgs(t, "untrimmed", &s.Untrimmed)
		d.MaybeScanArgs(t, "most", &s.UntrimmedMost)
		d.MaybeScanArgs(t, "since", &since)
		var err error
		if s.SinceCleanup, err = time.ParseDuration(since); err != nil {
			t.Fatal(err)
		}
		needs := Due(s)
		return describe("checkpoint", needs.Checkpoint) + describe("cleanup", needs.Cleanup)
	})
}

func describe(kind string, n Need) string {
	verdict := "not due"
	if n.Due {
		verdict = "due"
	}
	if n.Critical {
		verdict = strings.Replace(verdict, "due", "critical", 1)
	}
	return fmt.Sprintf("%s %s, score %.2f: %s\n", kind, verdict, n.Score, n.Note)
}

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
//	due version=V checkpoint=V every=N untrimmed=N most=N since=DURATION small=N bins=N compact_files=N
//
// of which what is left out is 0, without a checkpoint, an interval of 10, an hour since the last cleanup, and a policy of
// 32 files. Compaction is only told of where there are small files.
func TestWhatIsDue(t *testing.T) {
	datadriven.RunTest(t, "testdata/due", func(t *testing.T, d *datadriven.TestData) string {
		s := State{Checkpoint: -1, CheckpointEvery: 10, CompactFiles: 32}
		since := "1h"
		d.MaybeScanArgs(t, "version", &s.Version)
		d.MaybeScanArgs(t, "checkpoint", &s.Checkpoint)
		d.MaybeScanArgs(t, "every", &s.CheckpointEvery)
		d.MaybeScanArgs(t, "untrimmed", &s.Untrimmed)
		d.MaybeScanArgs(t, "most", &s.UntrimmedMost)
		d.MaybeScanArgs(t, "since", &since)
		d.MaybeScanArgs(t, "small", &s.Compaction.Files)
		d.MaybeScanArgs(t, "bins", &s.Compaction.Bins)
		d.MaybeScanArgs(t, "compact_files", &s.CompactFiles)
		s.Compaction.Bytes = int64(s.Compaction.Files) << 20
		var err error
		if s.SinceCleanup, err = time.ParseDuration(since); err != nil {
			t.Fatal(err)
		}
		needs := Due(s)
		text := describe("checkpoint", needs.Checkpoint) + describe("cleanup", needs.Cleanup)
		if s.Compaction.Files > 0 || needs.Compaction.Due {
			text += describe("compaction", needs.Compaction)
		}
		return text
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

package compaction

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"tidemark/internal/deltalog"
)

// TestPlans replays testdata/plan. A case is
//
//	append|upsert target=N [busy=BUCKET]
//	PATH SIZE [p=PARTITION]       of an append table, the oldest first
//	PATH SIZE BUCKET/KEY          of an upsert table
//
// and the answer has one line per bin.
func TestPlans(t *testing.T) {
	datadriven.RunTest(t, "testdata/plan", func(t *testing.T, d *datadriven.TestData) string {
		o := Options{Upsert: d.Cmd == "upsert"}
		var busy string
		d.ScanArgs(t, "target", &o.Target)
		d.MaybeScanArgs(t, "busy", &busy)
		o.Busy = func(bucket string) bool { return bucket == busy }
		var files []deltalog.Add
		for i, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			files = append(files, fileOf(t, line, i))
		}
		forward := describe(Plan(slices.Values(files), o))
		slices.Reverse(files)
		if backward := describe(Plan(slices.Values(files), o)); backward != forward {
			t.Errorf("%s: the order in which files are listed matters:\n%s\n%s", d.Pos, forward, backward)
		}
		return forward
	})
}

func fileOf(t *testing.T, line string, at int) deltalog.Add {
	words := strings.Fields(line)
	size, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	add := deltalog.Add{Path: words[0], Size: size, ModificationTime: int64(at)}
	for _, word := range words[2:] {
		if value, ok := strings.CutPrefix(word, "p="); ok {
			add.PartitionValues = map[string]string{"p": value}
		} else if bucket, key, ok := strings.Cut(word, "/"); ok {
			add.Tags = map[string]string{deltalog.TagBucket: bucket, deltalog.TagKeyMin: base64.StdEncoding.EncodeToString([]byte(key))}
		}
	}
	return add
}

func describe(bins []Bin) string {
	var b strings.Builder
	for _, bin := range bins {
		var paths []string
		for _, f := range bin.Files {
			paths = append(paths, f.Path)
		}
		fmt.Fprintf(&b, "%s: %d bytes\n", strings.Join(paths, " "), bin.Bytes)
	}
	if b.Len() == 0 {
		return "nothing"
	}
	return b.String()
}

// apply is the table after a plan was carried out, with files that came out smaller or larger than what went in.
func apply(files []deltalog.Add, bins []Bin, round int, grown func() float64) []deltalog.Add {
	gone := map[string]bool{}
	for i, bin := range bins {
		for _, f := range bin.Files {
			gone[f.Path] = true
		}
		add := bin.Files[0]
		add.Path, add.Size = fmt.Sprintf("c%d-%d", round, i), int64(float64(bin.Bytes)*grown())
		add.ModificationTime = int64(1_000_000 + round)
		files = append(files, add)
	}
	return slices.DeleteFunc(files, func(f deltalog.Add) bool { return gone[f.Path] })
}

func TestEveryPlanKeepsWithinPlacesAndSizesAndRepeatingItEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Target: 1000, Upsert: rapid.Bool().Draw(t, "upsert")}
		var files []deltalog.Add
		for i := range rapid.IntRange(0, 60).Draw(t, "files") {
			place := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "place")
			add := deltalog.Add{Path: fmt.Sprintf("f%d", i), Size: rapid.Int64Range(1, 1200).Draw(t, "size"), ModificationTime: int64(i)}
			if o.Upsert {
				add.Tags = map[string]string{deltalog.TagBucket: place, deltalog.TagKeyMin: base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%03d", i))}
			} else {
				add.PartitionValues = map[string]string{"p": place}
			}
			files = append(files, add)
		}
		for round := 0; ; round++ {
			bins := Plan(slices.Values(files), o)
			if len(bins) == 0 {
				break
			}
			checkBins(t, files, bins, o)
			before := len(files)
			files = apply(files, bins, round, func() float64 { return rapid.Float64Range(0.3, 1.5).Draw(t, "grown") })
			if len(files) != before-Count(bins).Saved() || len(files) >= before {
				t.Fatalf("%d files before, %d after", before, len(files))
			}
		}
	})
}

func checkBins(t *rapid.T, files []deltalog.Add, bins []Bin, o Options) {
	seen := map[string]bool{}
	for _, bin := range bins {
		if len(bin.Files) < 2 || bin.Bytes > o.Target {
			t.Fatalf("a bin of %d files and %d bytes", len(bin.Files), bin.Bytes)
		}
		first, last := bin.Files[0], bin.Files[len(bin.Files)-1]
		for _, f := range bin.Files {
			if seen[f.Path] || !o.small(f) {
				t.Fatalf("%s is twice in the plan, or not small", f.Path)
			}
			seen[f.Path] = true
			if partition(f) != partition(first) || f.Tags[deltalog.TagBucket] != first.Tags[deltalog.TagBucket] {
				t.Fatalf("%s and %s are not of one place", first.Path, f.Path)
			}
		}
		if !o.Upsert {
			continue
		}
		for _, f := range files {
			between := keyOf(f) > keyOf(first) && keyOf(f) < keyOf(last)
			inside := slices.ContainsFunc(bin.Files, func(b deltalog.Add) bool { return b.Path == f.Path })
			if between && !inside && f.Tags[deltalog.TagBucket] == first.Tags[deltalog.TagBucket] {
				t.Fatalf("%s lies between %s and %s", f.Path, first.Path, last.Path)
			}
		}
	}
}

func keyOf(f deltalog.Add) string {
	key, err := base64.StdEncoding.DecodeString(f.Tags[deltalog.TagKeyMin])
	if err != nil {
		panic(err)
	}
	return string(key)
}

// A table that grows by small files, compacted whenever 32 could be saved, rewrites each byte a few times, however long
// it grows; and the small files that are left are few.
func TestARowIsRewrittenALogarithmicNumberOfTimes(t *testing.T) {
	o := Options{Target: 128 << 20}
	var files []deltalog.Add
	written, rewritten, most := int64(0), int64(0), 0
	for i := range 20_000 {
		size := int64(200_000 + 1000*(i%97))
		written += size
		files = append(files, deltalog.Add{Path: fmt.Sprintf("f%d", i), Size: size, ModificationTime: int64(i)})
		bins := Plan(slices.Values(files), o)
		if b := Count(bins); b.Saved() >= 32 {
			rewritten += b.Bytes
			files = apply(files, bins, i, func() float64 { return 1 })
		}
		small := 0
		for _, f := range files {
			if o.small(f) {
				small++
			}
		}
		most = max(most, small)
	}
	ratio := float64(rewritten) / float64(written)
	t.Logf("%d files for %d MB; every byte was rewritten %.2f times; at most %d small files", len(files), written>>20, ratio, most)
	if ratio > 5 || most > 48 || len(files) > 2*int(written/(128<<20))+48 {
		t.Error("that is too often, or too many")
	}
}

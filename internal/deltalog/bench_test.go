package deltalog

import (
	"fmt"
	"strings"
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
)

// A table of a hundred thousand files: what loading it from its checkpoint takes, and what one more version takes.
func BenchmarkHundredThousandFiles(b *testing.B) {
	c := clock.System()
	store := objstore.NewMemory(c)
	l, s := newLog(b, store, c)
	for i := range 100_000 {
		s.setFile(newFile(Add{
			Path: fmt.Sprintf("part-0123456789abcdef0123456789abcdef-%d.parquet", i), Size: 1 << 27, ModificationTime: 1,
			Stats: `{"numRecords":1000,"minValues":{` + strings.Repeat(`"column":123456789,`, 8) + fmt.Sprintf(`"id":%d}}`, i),
			Tags:  map[string]string{TagBucket: fmt.Sprintf("bucket-%04d", i%64), TagKeyMin: fmt.Sprint("a", i), TagKeyMax: fmt.Sprint("b", i)},
		}))
	}
	if err := l.Checkpoint(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Snapshot(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("refresh", func(b *testing.B) {
		b.ReportAllocs()
		next := grow(b, l, s, 1)
		for b.Loop() {
			if got, err := l.Refresh(b.Context(), s); err != nil || got.Version != next.Version {
				b.Fatal(err)
			}
		}
	})
}

package merge

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// count is a source of the numbers from (included) to (excluded).
func count(from, to int) source[int] {
	return func(_ context.Context, give func(int) error) error {
		for i := from; i < to; i++ {
			if err := give(i); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestSourcesAreDeliveredInOrderHoweverManyRunAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sources []source[int]
		var want []int
		for range rapid.IntRange(0, 8).Draw(t, "sources") {
			n := rapid.IntRange(0, 5).Draw(t, "values")
			sources = append(sources, count(len(want), len(want)+n))
			for range n {
				want = append(want, len(want))
			}
		}
		feed := startAhead(context.Background(), sources, rapid.IntRange(1, 4).Draw(t, "width"), func(int) {})
		defer feed.stop()
		var got []int
		for feed.nextSource() {
			for {
				v, err := feed.next(context.Background())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, v)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestASourceThatWasNotReadDoesNotLookEmpty(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 100 { // whether a source still starts is up to chance
		feed := startAhead(ctx, []source[int]{count(0, 9), count(9, 20)}, 1, func(int) {})
		failed := false
		for feed.nextSource() {
			for err := error(nil); err == nil; {
				_, err = feed.next(context.Background())
				failed = failed || errors.Is(err, context.Canceled)
			}
		}
		feed.stop()
		if !failed {
			t.Fatal("a cancelled reading ended as if it were complete")
		}
	}
}

func TestLeavingASourceEarlyDropsWhatItStillGives(t *testing.T) {
	dropped := 0
	feed := startAhead(context.Background(), []source[int]{count(0, 10), count(10, 12)}, 1, func(int) { dropped++ })
	feed.nextSource()
	if v, err := feed.next(context.Background()); v != 0 || err != nil {
		t.Fatal(v, err)
	}
	feed.nextSource()
	if v, err := feed.next(context.Background()); v != 10 || err != nil {
		t.Fatal(v, err)
	}
	feed.stop()
	feed.stop()
	if dropped < 9 {
		t.Fatalf("%d of the values nobody took were dropped", dropped)
	}
}

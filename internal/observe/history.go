package observe

import (
	"context"
	"time"

	"tidemark/internal/clock"
)

const (
	// sampleEvery is how often sums are noted, and samplesMax how many are kept: half an hour, 40 KiB.
	sampleEvery = 2 * time.Second
	samplesMax  = 900
	// rateSmoothing is the weight of the newest two seconds in a table's rate: merges come in bursts, and a rate that
	// jumped with them could not be read.
	rateSmoothing = 0.12
	// rateLeast is below what a rate counts as none.
	rateLeast = 0.05
)

// Sample is the sums of all tables at a moment.
type Sample struct {
	MS                 int64   `json:"ms"`
	PendingGenerations uint64  `json:"pending_generations"`
	PendingBytes       int64   `json:"pending_bytes"`
	OldestSeconds      float64 `json:"oldest_seconds"`
	RowsPerSecond      float64 `json:"rows_per_second"`
	Executions         int     `json:"executions"`
}

// history is the latest samples, oldest first.
type history struct{ samples []Sample }

// Samples are the sums over time, after a moment, oldest first: at most half an hour of them.
func (o *Observer) Samples(afterMS int64) []Sample {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := []Sample{}
	for _, s := range o.history.samples {
		if s.MS > afterMS {
			out = append(out, s)
		}
	}
	return out
}

// sample notes the sums until ctx is done.
func (o *Observer) sample(ctx context.Context) {
	last := o.mono()
	for clock.Sleep(ctx, o.config.Clock, sampleEvery) == nil {
		now := o.mono()
		o.take(now - last)
		last = now
	}
}

func (o *Observer) take(since time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.fresh {
		return // a gap in the line, rather than a wrong number
	}
	nowMS := o.NowMS()
	s := Sample{MS: nowMS, Executions: len(o.executions)}
	var oldest int64
	for _, t := range o.tables {
		sums := t.summed()
		s.PendingGenerations += sums.gens
		s.PendingBytes += sums.bytes
		if sums.oldestMS != 0 && (oldest == 0 || sums.oldestMS < oldest) {
			oldest = sums.oldestMS
		}
		s.RowsPerSecond += t.measure(sums.mergedRows, since.Seconds())
	}
	if oldest != 0 {
		s.OldestSeconds = float64(max(0, nowMS-oldest)) / 1000
	}
	if len(o.history.samples) >= samplesMax {
		o.history.samples = append(o.history.samples[:0], o.history.samples[1:]...)
	}
	o.history.samples = append(o.history.samples, s)
	o.announce()
}

// measure notes how many rows have been merged and returns how many a second that is since it was last called.
func (t *tableNotes) measure(merged int64, seconds float64) (now float64) {
	if t.rateSince >= 0 && merged > t.rateSince && seconds > 0 {
		now = float64(merged-t.rateSince) / seconds
	}
	t.rateSince = merged
	t.rate += (now - t.rate) * rateSmoothing
	if t.rate < rateLeast {
		t.rate = 0
	}
	return now
}

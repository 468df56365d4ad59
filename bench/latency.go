package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/table"
)

// latencyLoad is how long the demo runs for the latency figure: some hundred generations at its usual rate.
const latencyLoad = 20 * time.Second

// latency runs the demo at its usual rate and says how long generations waited from seal to merge. Both times are of this
// machine: the seal's is in the manifest, the merge's is that of the Delta commit.
func latency(ctx context.Context, _ *bench) error {
	root, err := os.MkdirTemp("", "tidemark-latency-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	cmd := exec.Command(filepath.Join("bin", "tidemark"), "dev", "--demo", "--root", root, "--listen", "127.0.0.1:0", "--log-level", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(latencyLoad)
	_ = cmd.Process.Signal(os.Interrupt) // it may have ended by itself, and Wait says how
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the demo: %w", err)
	}
	var waits []time.Duration
	for _, name := range []string{"demo/events", "demo/orders"} {
		w, err := waitsOf(ctx, root, name)
		if err != nil {
			return err
		}
		waits = append(waits, w...)
	}
	if len(waits) == 0 {
		return fmt.Errorf("the demo merged nothing in %v", latencyLoad)
	}
	slices.Sort(waits)
	at := func(q float64) time.Duration { return waits[int(q*float64(len(waits)-1))].Round(time.Millisecond) }
	fmt.Printf("latency %d generations of the demo from seal to merge: p50 %v, p99 %v, most %v\n", len(waits), at(0.5), at(0.99), at(1))
	return nil
}

// waitsOf is how long each merged generation of a table waited.
func waitsOf(ctx context.Context, root, name string) ([]time.Duration, error) {
	c, r := clock.System(), random.New()
	store, err := objstore.NewLocal(root, c, r)
	if err != nil {
		return nil, err
	}
	t, shards, err := table.Shards(ctx, store, name, table.Deps{Clock: c, Random: r})
	if err != nil {
		return nil, err
	}
	commits, err := deltalog.Open(store, name, deltalog.Options{Clock: c, Random: r, Log: hclog.NewNullLogger()}).Since(ctx, -1)
	if err != nil {
		return nil, err
	}
	var waits []time.Duration
	for _, s := range shards {
		merged := uint64(0)
		for _, commit := range commits {
			for _, txn := range commit.Txns {
				if txn.AppID != deltalog.AppID(t.ID, s.Manifest.Shard) {
					continue
				}
				for ; merged < uint64(txn.Version); merged++ {
					if g, ok := s.Manifest.Generation(merged + 1); ok {
						waits = append(waits, time.Duration(txn.LastUpdated-g.SealedMS)*time.Millisecond)
					}
				}
			}
		}
	}
	return waits, nil
}

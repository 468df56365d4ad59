package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
	"golang.org/x/sync/errgroup"

	"tidemark/writer"
)

// append deals generations out to lanes, one after the other, so that which rows a generation has depends on the source
// alone. Each lane is one shard; it takes the next generation while it seals one, so at most two per lane are in memory,
// and the one being cut.
func (l *load) append(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	free := &freeShards{load: l}
	lanes := make([]*lane, l.plan.Shards)
	for i := range lanes {
		lanes[i] = &lane{load: l, free: free, generations: make(chan generation)}
		group.Go(func() error { return lanes[i].run(ctx) })
	}
	group.Go(func() error {
		defer func() {
			for _, lane := range lanes {
				close(lane.generations)
			}
		}()
		return l.deal(ctx, lanes)
	})
	return group.Wait()
}

func (l *load) deal(ctx context.Context, lanes []*lane) error {
	cut := cutter{src: l.src, size: int64(l.plan.RowsPerGeneration)}
	defer cut.release()
	for turn := 0; ; turn++ {
		g, err := cut.next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case lanes[turn%len(lanes)].generations <- g:
		case <-ctx.Done():
			g.release()
			return context.Cause(ctx)
		}
	}
}

// freeShards finds shards that nobody has open, each once.
type freeShards struct {
	load *load
	mu   sync.Mutex // guards next, and orders claims
	next int
}

func (f *freeShards) claim(ctx context.Context) (*writer.Writer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	config := f.load.deps.Config
	config.IfFree = true
	for ; f.next < shardNumbersMax; f.next++ {
		config.Shard = fmt.Sprintf("ingest-%d", f.next)
		w, err := writer.ClaimWith(ctx, config, f.load.deps.Writer)
		switch {
		case err == nil:
			f.next++
			return w, nil
		case errors.Is(err, writer.ErrOpen), errors.Is(err, writer.ErrFenced):
			// Somebody has it, or has just been faster.
		default:
			return nil, err
		}
	}
	return nil, fmt.Errorf("table %s: the shards ingest-0 to ingest-%d are all open", config.Table, shardNumbersMax-1)
}

// lane writes the generations dealt to it to one shard, which it claims when the first one comes.
type lane struct {
	load        *load
	free        *freeShards
	generations chan generation
	w           *writer.Writer
	holds       bool // rows that are appended and not sealed
	moves       int
}

func (n *lane) run(ctx context.Context) error {
	err := n.write(ctx)
	for g := range n.generations { // after an error, until the dealer has noticed
		g.release()
	}
	return errors.Join(err, n.close(ctx))
}

func (n *lane) write(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case g, ok := <-n.generations:
			if !ok {
				return nil
			}
			err := n.seal(ctx, g)
			g.release()
			if err != nil {
				return err
			}
		}
	}
}

// close gives the shard back. A lane that holds rows has failed or was stopped half way through a generation, and drops
// them: sealing them now would put rows into the table that no report speaks of.
func (n *lane) close(ctx context.Context) error {
	switch {
	case n.w == nil:
		return nil
	case n.holds:
		return n.abandon()
	}
	ctx, cancel := uncancelled(ctx)
	defer cancel()
	if err := n.w.Close(ctx); err != nil && !errors.Is(err, writer.ErrFenced) {
		return errors.Join(err, n.abandon())
	}
	return nil
}

func (n *lane) abandon() error {
	unsealed, inDoubt, err := n.w.Abandon()
	generation(unsealed).release()
	generation(inDoubt).release()
	return err
}

// seal writes one generation; it is cut in two where the writer's buffer is full.
func (n *lane) seal(ctx context.Context, g generation) error {
	for _, rec := range g {
		err := n.append(ctx, rec)
		if errors.Is(err, writer.ErrBufferFull) {
			if err = n.commit(ctx); err == nil {
				err = n.append(ctx, rec)
			}
		}
		if err != nil {
			return err
		}
	}
	return n.commit(ctx)
}

func (n *lane) append(ctx context.Context, rec arrow.Record) error {
	if n.w == nil {
		var err error
		if n.w, err = n.free.claim(ctx); err != nil {
			return err
		}
	}
	n.holds = true
	return n.w.Append(ctx, rec)
}

// commit seals what is buffered. If another writer has taken the shard, the rows go to a new one.
func (n *lane) commit(ctx context.Context) error {
	for {
		sealed, err := settled(ctx, n.w.Seal)
		if err == nil {
			n.holds = false
			n.load.sealed(sealed)
			return nil
		}
		fenced := (*writer.FencedError)(nil)
		if !errors.As(err, &fenced) {
			return err
		}
		n.moves++
		if fenced.Retired || len(fenced.InDoubt) > 0 || n.moves > movesMax {
			generation(fenced.Unsealed).release()
			generation(fenced.InDoubt).release()
			return err
		}
		if err := n.move(ctx, fenced.Unsealed); err != nil {
			return err
		}
	}
}

func (n *lane) move(ctx context.Context, unsealed generation) error {
	defer unsealed.release()
	err := n.w.Close(ctx) // it has ended; this frees what it had opened
	n.w = nil
	for _, rec := range unsealed {
		if err == nil {
			err = n.append(ctx, rec)
		}
	}
	return err
}

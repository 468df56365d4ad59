package shardmanifest

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// ClaimOptions say who claims a shard.
type ClaimOptions struct {
	WriterID string // a random id, never used before; empty draws one
	Label    string // for people: host and process, say
	// IfFree refuses with ErrOpen a shard that another writer has open, instead of fencing that writer.
	IfFree bool
}

// Hold is a claimed shard as its writer sees it: the newest manifest it knows, and at most one seal whose outcome is not
// settled. It is not safe for concurrent use.
type Hold struct {
	chain    *Chain
	epoch    uint64
	writerID string
	newest   *Manifest
	pending  *pendingSeal
}

// pendingSeal is a seal on its way: the version that names it, byte for byte as it was put, and the best answer so far.
type pendingSeal struct {
	next *Manifest
	body []byte
	// sent: a put reached the store, or may have. Until then the seal can simply be dropped.
	sent   bool
	answer objstore.Outcome
}

// Claim takes the shard, creating it if needed, and fences whoever held it. The later of two claims wins: a claim that
// loses its put to another claim is made again on top of it. It fails with ErrRetired, with ErrOpen if asked to, with
// ErrFenced if yet another writer claimed before this one could look, and with ErrInDoubt when the store stays silent;
// claiming again, under another writer id, is then safe, since it fences the doubtful one.
func (c *Chain) Claim(ctx context.Context, o ClaimOptions) (*Hold, error) {
	if err := CheckName(c.shard); err != nil {
		return nil, err
	}
	if o.WriterID == "" {
		o.WriterID = random.ID(c.random)
	}
	ev := claimEvent{writerID: o.WriterID, label: o.Label, ms: c.clock.Now().UnixMilli(), ifFree: o.IfFree}
	for range commitTries {
		newest, err := c.Latest(ctx)
		if errors.Is(err, ErrNoShard) {
			newest, err = unborn(c.tableID, c.shard), nil
		}
		if err != nil {
			return nil, err
		}
		// An earlier round of this loop may have landed although its answer said nothing.
		if h, err := c.adopt(newest, o.WriterID); h != nil || err != nil {
			return h, err
		}
		next, err := newest.after(ev, random.ID(c.random))
		if err != nil {
			return nil, c.wrap("claim", err)
		}
		if _, err := c.putVersion(ctx, next); err != nil {
			return nil, c.wrap("claim", err)
		}
	}
	return nil, c.wrap("claim", ErrContended)
}

// adopt looks for a claim of the writer in the newest manifest. The answer to the claim's put is not needed: what the
// newest manifest says is what every later put is built on.
func (c *Chain) adopt(newest *Manifest, writerID string) (*Hold, error) {
	if newest.WriterID == writerID {
		return &Hold{chain: c, epoch: newest.Epoch, writerID: writerID, newest: newest}, nil
	}
	for _, claim := range newest.Claims {
		if claim.WriterID == writerID {
			return nil, &FencedError{Table: c.table, Shard: c.shard, By: newest.Holder()}
		}
	}
	return nil, nil
}

// Chain is the chain that was claimed.
func (h *Hold) Chain() *Chain { return h.chain }

// Epoch is the writer epoch of the claim.
func (h *Hold) Epoch() uint64 { return h.epoch }

// Manifest is the newest manifest the holder knows.
func (h *Hold) Manifest() *Manifest { return h.newest }

// Next is the number of the generation that the next seal creates, or that the unsettled seal is creating.
func (h *Hold) Next() uint64 { return h.newest.SealedThrough + 1 }

// Admits refuses with ErrFenced, ErrRetired, ErrClosed or ErrBacklogged what a seal would be refused for as far as the
// holder knows, so that a writer can ask before it uploads a file.
func (h *Hold) Admits() error {
	if err := h.newest.admits(h.epoch, h.writerID); err != nil {
		return h.chain.wrap("seal", err)
	}
	if len(h.newest.Generations) >= GenerationsMax {
		return h.chain.wrap("seal", ErrBacklogged)
	}
	return nil
}

// Refresh reads the newest manifest, which may have been trimmed meanwhile. It does nothing while a seal is unsettled.
func (h *Hold) Refresh(ctx context.Context) error {
	if h.pending != nil {
		return nil
	}
	newest, err := h.chain.Latest(ctx)
	if err != nil {
		return err
	}
	h.newest = newest
	return nil
}

// Unsettled reports whether a seal is unsettled: whether its generation exists is not known, and may still change.
func (h *Hold) Unsettled() bool { return h.pending != nil }

// Seal commits a generation whose file has been uploaded. Of the generation, Path, Bytes, Rows, SealedMS, Schema, the
// key range and XXH3 are the caller's; the rest is filled in. It returns the manifest in which the generation is sealed.
//
// The errors say what became of it. ErrFenced (see FencedError.InDoubt), ErrRetired, ErrBacklogged and ErrClosed:
// unsealed for good, unless in doubt. ErrInDoubt: not settled; Seal must be called again with the same generation, and
// with no other, until it is. Anything else: unsealed if Unsettled is false, else as with ErrInDoubt.
func (h *Hold) Seal(ctx context.Context, g Generation) (*Manifest, error) {
	if h.pending != nil && h.pending.generation().Path != g.Path {
		return nil, h.chain.wrap("seal", ErrUnsettled)
	}
	for range commitTries {
		if h.pending == nil {
			next, err := h.newest.after(sealEvent{h.epoch, h.writerID, g}, random.ID(h.chain.random))
			if err != nil {
				return nil, h.chain.wrap("seal", err)
			}
			body, err := Encode(next)
			if err != nil {
				return nil, err
			}
			h.pending = &pendingSeal{next: next, body: body, answer: objstore.Unknown}
		}
		settlement, err := h.drive(ctx)
		if err != nil {
			return nil, h.chain.wrap("seal", err)
		}
		h.pending = nil
		switch settlement {
		case Sealed:
			return h.newest, nil
		case InDoubt:
			return nil, &FencedError{Table: h.chain.table, Shard: h.chain.shard, By: h.newest.Holder(), InDoubt: true}
		}
		// Unsealed: a trim took the number, and the next round builds on it; or a claim did, and the round refuses.
	}
	return nil, h.chain.wrap("seal", ErrContended)
}

func (p *pendingSeal) generation() Generation {
	return p.next.Generations[len(p.next.Generations)-1]
}

// drive puts the pending seal, unchanged, until a manifest read after the answer settles it. Then it returns the
// settlement, and newest is that manifest.
func (h *Hold) drive(ctx context.Context) (Settlement, error) {
	for try := range reissueTries {
		if err := h.chain.pauseBefore(ctx, try); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrInDoubt, err)
		}
		res := h.chain.put(ctx, h.pending.next.Version, h.pending.body)
		taken := errors.Is(res.Err, objstore.ErrExists)
		switch {
		case res.Outcome == objstore.Applied, res.Outcome == objstore.Refused && taken:
			h.pending.answer, h.pending.sent = res.Outcome, true
		case res.Outcome == objstore.Unknown:
			h.pending.sent = true
		case !h.pending.sent:
			// Refused for a reason of its own, and nothing of this seal is on its way.
			err := fmt.Errorf("put manifest version %d: %w", h.pending.next.Version, res.Err)
			h.pending = nil
			return 0, err
		}
		settlement, newest, err := h.settle(ctx)
		if err != nil {
			return 0, fmt.Errorf("put manifest version %d: %w: %w", h.pending.next.Version, ErrInDoubt, err)
		}
		if settlement != MustReissue {
			h.newest = newest
			return settlement, nil
		}
		if res.Outcome == objstore.Refused {
			return 0, fmt.Errorf("put manifest version %d: %w: %w", h.pending.next.Version, ErrInDoubt, res.Err)
		}
	}
	return 0, fmt.Errorf("put manifest version %d: %w", h.pending.next.Version, ErrInDoubt)
}

// settle reads the newest manifest and settles the pending seal from it.
func (h *Hold) settle(ctx context.Context) (Settlement, *Manifest, error) {
	p := h.pending
	var newest *Manifest
	var err error
	if p.answer == objstore.Applied {
		newest, err = h.chain.newestAfter(ctx, p.next)
	} else {
		newest, err = h.chain.Latest(ctx)
	}
	if err != nil {
		return 0, nil, err
	}
	g := p.generation()
	return Settle(Attempt{
		Version: p.next.Version, Nonce: p.next.Nonce, Epoch: h.epoch, WriterID: h.writerID,
		Generation: g.Number, Path: g.Path, Answer: p.answer,
	}, newest), newest, nil
}

// Close gives the shard up, so that IfFree claims can have it. A seal that is unsettled must be settled first. Closing a
// closed shard does nothing; one that another writer has claimed is that writer's, and Close fails with ErrFenced.
func (h *Hold) Close(ctx context.Context) error {
	if h.pending != nil {
		return h.chain.wrap("close", ErrUnsettled)
	}
	m, err := h.chain.commit(ctx, "close", closeEvent{h.epoch, h.writerID})
	if err != nil {
		return err
	}
	h.newest = m
	return nil
}

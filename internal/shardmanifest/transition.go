package shardmanifest

import (
	"fmt"
	"slices"
)

// event is something that happens to a shard. It changes a copy of the newest manifest, whose version and boundary have
// moved on already, or refuses with an error that says why. errNothingToDo: the manifest is as the event wants it.
type event interface {
	apply(next *Manifest) error
}

// errNothingToDo ends an event that the newest manifest already reflects.
var errNothingToDo = fmt.Errorf("nothing to do")

// after is the only way from one version to the next: it copies m, numbers the copy, raises the boundary and applies ev.
// m itself is unchanged. The nonce must be fresh.
func (m *Manifest) after(ev event, nonce string) (*Manifest, error) {
	next := *m
	next.Claims = slices.Clone(m.Claims)
	next.Trims = slices.Clone(m.Trims)
	next.Generations = slices.Clip(m.Generations)
	next.Nonce = nonce
	next.Version++
	if next.Version > versionsKept {
		next.Boundary = max(next.Boundary, next.Version-1-versionsKept)
	}
	if err := ev.apply(&next); err != nil {
		return nil, err
	}
	return &next, nil
}

// unborn is version 0: what the first claim is applied to. It is never stored.
func unborn(tableID, shard string) *Manifest {
	return &Manifest{Format: FormatVersion, TableID: tableID, Shard: shard, State: StateClosed, Generations: []Generation{}}
}

// claimEvent: a writer takes the shard, whoever has it.
type claimEvent struct {
	writerID, label string
	ms              int64
	ifFree          bool // refuse a shard that another writer has open
}

func (e claimEvent) apply(next *Manifest) error {
	switch {
	case next.State == StateRetired:
		return ErrRetired
	case e.ifFree && next.State == StateOpen:
		return fmt.Errorf("%w: %s", ErrOpen, describeWriter(next.Holder()))
	}
	next.Epoch++
	next.WriterID, next.WriterLabel = e.writerID, e.label
	next.State = StateOpen
	next.Claims = append(next.Claims, Claim{
		Epoch: next.Epoch, WriterID: e.writerID, Label: e.label, SealedThrough: next.SealedThrough, ClaimedMS: e.ms,
	})
	if excess := len(next.Claims) - claimsMax; excess > 0 {
		next.Claims = next.Claims[excess:]
	}
	return nil
}

// sealEvent: the holder names its next generation.
type sealEvent struct {
	epoch      uint64
	writerID   string
	generation Generation // Number, CumBytes, CumRows and Epoch are filled in here
}

func (e sealEvent) apply(next *Manifest) error {
	if err := next.admits(e.epoch, e.writerID); err != nil {
		return err
	}
	if len(next.Generations) >= GenerationsMax {
		return ErrBacklogged
	}
	g := e.generation
	next.SealedThrough++
	next.Bytes += g.Bytes
	next.Rows += g.Rows
	g.Number, g.Epoch = next.SealedThrough, next.Epoch
	g.CumBytes, g.CumRows = next.Bytes, next.Rows
	next.Generations = append(next.Generations, g)
	return nil
}

// closeEvent: the holder gives the shard up.
type closeEvent struct {
	epoch    uint64
	writerID string
}

func (e closeEvent) apply(next *Manifest) error {
	if next.State != StateOpen && !next.fences(e.epoch, e.writerID) {
		return errNothingToDo
	}
	if err := next.admits(e.epoch, e.writerID); err != nil {
		return err
	}
	next.State = StateClosed
	return nil
}

// retireEvent: the shard's table is gone. Nobody is asked.
type retireEvent struct{}

func (retireEvent) apply(next *Manifest) error {
	switch {
	case next.Epoch == 0:
		return ErrNoShard
	case next.State == StateRetired:
		return errNothingToDo
	}
	next.State = StateRetired
	return nil
}

// trimEvent: the generations up to a merged mark, which was read from storage, need not be listed any more.
type trimEvent struct {
	merged   uint64
	released uint64 // the files of trims up to this generation may be deleted already
}

func (e trimEvent) apply(next *Manifest) error {
	through := min(e.merged, next.SealedThrough)
	switch {
	case next.Epoch == 0:
		return ErrNoShard
	case through <= next.TrimmedThrough:
		return errNothingToDo
	}
	bytes, rows, epoch, _ := next.CumAt(through)
	next.Generations = slices.Clone(next.Pending(through))
	next.TrimmedThrough, next.TrimmedBytes, next.TrimmedRows, next.TrimmedEpoch = through, bytes, rows, epoch
	// Of the released trims the highest is kept: it goes on saying that its files may be deleted.
	for len(next.Trims) > 1 && next.Trims[1].Through <= e.released {
		next.Trims = next.Trims[1:]
	}
	if len(next.Trims) == trimsMax {
		next.Trims = next.Trims[:trimsMax-1]
	}
	next.Trims = append(next.Trims, Trim{Through: through, Version: next.Version})
	return nil
}

// admits refuses a writer that does not hold the shard, or whose shard is not open.
func (m *Manifest) admits(epoch uint64, writerID string) error {
	switch {
	case m.State == StateRetired:
		return ErrRetired
	case m.fences(epoch, writerID):
		return &FencedError{Shard: m.Shard, By: m.Holder()}
	case m.State == StateClosed:
		return ErrClosed
	}
	return nil
}

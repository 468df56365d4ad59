package shardmanifest

import (
	"errors"
	"fmt"
)

var (
	// ErrNoShard: no manifest of the shard exists.
	ErrNoShard = errors.New("the shard does not exist")
	// ErrRetired: the shard is retired; it can neither be claimed nor sealed.
	ErrRetired = errors.New("the shard is retired; its table was dropped or replaced")
	// ErrBacklogged: the manifest lists as many generations as it may.
	ErrBacklogged = fmt.Errorf("%d sealed generations are not trimmed yet; "+
		"seal again once executors have merged some and cleanup has run", GenerationsMax)
	// ErrOpen: a claim that asked for a shard which nobody has open met one that somebody has.
	ErrOpen = errors.New("another writer has the shard open")
	// ErrClosed: the writer closed the shard; it must be claimed again to be sealed.
	ErrClosed = errors.New("the shard was closed by its writer")
	// ErrInDoubt: a put went out and the store has not said what became of it. Nothing it may have made visible has
	// been deleted. Calling again settles it.
	ErrInDoubt = errors.New("the store did not say whether the change was made")
	// ErrContended: every attempt lost its put to another writer of the same manifest.
	ErrContended = errors.New("too many others changed the manifest meanwhile; try again")
	// ErrFenced: another writer has claimed the shard. It is always a *FencedError.
	ErrFenced = errors.New("another writer has claimed the shard")
	// ErrFormat: the manifest was written in a format this build does not know.
	ErrFormat = errors.New("unknown manifest format")
	// ErrDamaged: the manifest's bytes make no sense.
	ErrDamaged = errors.New("damaged manifest")
	// ErrUnsettled: another generation was given to Seal before the last one was settled.
	ErrUnsettled = errors.New("the last seal is not settled yet; seal the same generation again first")
)

// FencedError says who took the shard, and what became of the seal that met it.
type FencedError struct {
	Table, Shard string
	By           Claim // the holder now
	// InDoubt: the generation that was being sealed may be sealed or not, and no manifest can tell any more. When
	// false it is settled as unsealed.
	InDoubt bool
}

func (e *FencedError) Error() string {
	verdict := "the generation being sealed is not sealed; claim again to go on"
	if e.InDoubt {
		verdict = "whether the generation being sealed is sealed cannot be told any more"
	}
	return fmt.Sprintf("shard %s of table %s: writer %s claimed it with epoch %d: %s",
		e.Shard, e.Table, describeWriter(e.By), e.By.Epoch, verdict)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

func describeWriter(c Claim) string {
	if c.Label == "" {
		return c.WriterID
	}
	return fmt.Sprintf("%q (%s)", c.Label, c.WriterID)
}

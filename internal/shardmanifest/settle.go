package shardmanifest

import (
	"fmt"

	"tidemark/internal/objstore"
)

// Attempt is one put of a manifest version that names a new generation.
type Attempt struct {
	Version    uint64 // the number it was put under
	Nonce      string
	Epoch      uint64 // of the writer's claim
	WriterID   string
	Generation uint64
	Path       string // of the generation's file
	// Answer is what the store said: Applied; Refused, because the number is taken by other bytes; or Unknown.
	Answer objstore.Outcome
}

// Settlement is what a later manifest says about an attempt.
type Settlement int

const (
	// Sealed: the attempt's rows are in its generation.
	Sealed Settlement = iota + 1
	// Unsealed: they are in no generation, and the attempt can never count any more.
	Unsealed
	// InDoubt: nobody can tell any more.
	InDoubt
	// MustReissue: the attempt's number does not exist yet, so it may still land; the identical put must be sent again.
	MustReissue
)

func (s Settlement) String() string {
	switch s {
	case Sealed:
		return "sealed"
	case Unsealed:
		return "unsealed"
	case InDoubt:
		return "in doubt"
	case MustReissue:
		return "must re-issue"
	}
	return fmt.Sprintf("settlement(%d)", int(s))
}

// Settle tells what became of an attempt from the newest manifest, which must have been read after the attempt's answer
// (or after it was given up on). It is a pure function, in this order:
//
//  1. The chain has no gaps, so a newest version below the attempt's number means that the number is free: a put still
//     on its way can take it. Everything below rests on the number being taken for good.
//  2. The newest version is the attempt's number: its nonce decides.
//  3. A definite answer counts if the number is above the boundary. At or below it, the answer may concern an object
//     that landed after the version had been deleted: then only contents decide.
//  4. The generation is above sealed_through: nobody ever sealed it.
//  5. It is listed: epoch and path say whose it is.
//  6. It was trimmed. The generations of a claim are those above its sealed_through and up to the next claim's.
func Settle(a Attempt, newest *Manifest) Settlement {
	switch {
	case newest.Version < a.Version:
		return MustReissue
	case newest.Version == a.Version:
		return sealedIf(newest.Nonce == a.Nonce)
	case a.Version > newest.Boundary && a.Answer == objstore.Applied:
		return Sealed
	case a.Version > newest.Boundary && a.Answer == objstore.Refused:
		return Unsealed
	case a.Generation > newest.SealedThrough:
		return Unsealed
	}
	if g, listed := newest.Generation(a.Generation); listed {
		return sealedIf(g.Epoch == a.Epoch && g.Path == a.Path)
	}
	if !newest.fences(a.Epoch, a.WriterID) {
		return Sealed
	}
	if next, listed := newest.claim(a.Epoch + 1); listed {
		return sealedIf(a.Generation <= next.SealedThrough)
	}
	return InDoubt
}

func sealedIf(sealed bool) Settlement {
	if sealed {
		return Sealed
	}
	return Unsealed
}

package merge

import "bytes"

// operation is what one version of a key asks for.
type operation uint8

const (
	upsert operation = iota // put this row in place
	remove                  // take the row away
)

// fold decides which version of one key survives. Versions are offered in arrival order: the base row first, then
// generation by generation, row by row. What has been kept so far is the whole state, so cutting the same
// generations into merges anywhere gives the same row. The zero fold is a key nobody has mentioned yet.
//
// A fold is reused from key to key (reset), so that it allocates nothing once its buffer has grown.
type fold struct {
	present  bool
	sequence []byte // of the row kept, as order-preserving bytes; empty without a sequence column
}

// reset forgets the key before.
func (f *fold) reset() { f.present = false; f.sequence = f.sequence[:0] }

// offer applies one version and reports whether its row is now the one kept. Without a sequence column the caller
// passes an empty sequence, and every version wins over what came before.
//
//   - an upsert replaces the row if there is none, or if its sequence is not below the row's;
//   - a delete takes the row away if its sequence is not below the row's. It leaves nothing behind: an older row
//     that arrives after a delete is a new row.
func (f *fold) offer(op operation, sequence []byte) (kept bool) {
	if f.present && bytes.Compare(sequence, f.sequence) < 0 {
		return false
	}
	if op == remove {
		f.present = false
		return false
	}
	f.present = true
	f.sequence = append(f.sequence[:0], sequence...)
	return true
}

package merge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
)

// The k-way merge of sorted runs, as a plan of ranges to move:
//
//  1. Every run stands at its next row. Runs are kept in a heap by (key, arrival): the base is arrival 0, generations
//     follow in order.
//  2. If the first run's key is below every other run's, the whole stretch of its rows below the next run's key is
//     found by galloping and emitted as one range. This is where nearly all rows of a base file go.
//  3. Otherwise, or where a run has several versions of one key or a delete, all versions of that one key are
//     offered to the fold in arrival order, and the row it kept, if any, is emitted.
//  4. Ranges of one block that follow each other are emitted as one.
//
// Nothing here allocates per row, and no row is looked at beyond its key.

// run is one sorted run, standing at a row.
type run struct {
	arrival int // order among versions of one key; the base is 0
	next    func(context.Context) (*block, error)
	block   *block
	at      int
	key     []byte // of the row at which the run stands
	prefix  uint64 // the key's first eight bytes, to decide most comparisons without touching memory
}

// stand moves the run to a row of its block.
func (r *run) stand(at int) {
	r.at = at
	r.key = r.block.keys.At(at)
	r.prefix = prefixOf(r.key)
}

// before says whether r's row comes before o's.
func (r *run) before(o *run) bool {
	if r.prefix != o.prefix {
		return r.prefix < o.prefix
	}
	if c := bytes.Compare(r.key, o.key); c != 0 {
		return c < 0
	}
	return r.arrival < o.arrival
}

func prefixOf(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

// load makes the run stand at the first row of its next non-empty block and reports whether there is one.
func (r *run) load(ctx context.Context) (bool, error) {
	if r.block != nil {
		r.block.release()
		r.block = nil
	}
	for {
		b, err := r.next(ctx)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if b.keys.Len() == 0 {
			b.release()
			continue
		}
		r.block = b
		r.stand(0)
		return true, nil
	}
}

// gallop is the number of rows from the one the run stands at, at most limit of them, whose keys are below bound.
func (r *run) gallop(bound []byte, limit int) int {
	keys, at := &r.block.keys, r.at
	if bound == nil || bytes.Compare(keys.At(at+limit-1), bound) < 0 {
		return limit
	}
	// Rows before at+low are below the bound, the row at at+high is not.
	low, high := 0, limit-1
	for step := 1; low+step < high; step *= 2 {
		if bytes.Compare(keys.At(at+low+step), bound) >= 0 {
			high = low + step
			break
		}
		low += step + 1
	}
	for low < high {
		middle := int(uint(low+high) / 2)
		if bytes.Compare(keys.At(at+middle), bound) < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// emitter receives the ranges that survive, in key order.
type emitter interface {
	// emit takes rows from to (exclusive) of a block. It retains the block for as long as it needs it.
	emit(ctx context.Context, b *block, from, to int) error
}

// merger merges runs. It owns the blocks its runs stand in.
type merger struct {
	heap []*run
	fold fold
	key  []byte // of the fold in hand
	out  emitter
}

// add puts a run among those to be merged, standing at its first row. A run without rows is dropped.
func (m *merger) add(ctx context.Context, r *run) error {
	ok, err := r.load(ctx)
	if err != nil || !ok {
		return err
	}
	m.heap = append(m.heap, r)
	m.up(len(m.heap) - 1)
	return nil
}

// close releases what the runs still stand in.
func (m *merger) close() {
	for _, r := range m.heap {
		r.block.release()
	}
	m.heap = nil
}

// first is the lowest key not yet merged, nil when there is none.
func (m *merger) first() []byte {
	if len(m.heap) == 0 {
		return nil
	}
	return m.heap[0].key
}

// mergeBelow merges every row whose key is below bound; a nil bound merges everything.
func (m *merger) mergeBelow(ctx context.Context, bound []byte) error {
	for len(m.heap) > 0 {
		top := m.heap[0]
		if bound != nil && bytes.Compare(top.key, bound) >= 0 {
			return nil
		}
		n := 0
		if top.block.distinct {
			n = m.stretch(top, bound)
		}
		if n == 0 {
			if err := m.mergeKey(ctx); err != nil {
				return err
			}
			continue
		}
		if err := m.out.emit(ctx, top.block, top.at, top.at+n); err != nil {
			return err
		}
		if err := m.advance(ctx, top, n); err != nil {
			return err
		}
	}
	return nil
}

// stretch is the number of rows that the first run can give away at once: below the bound and below every other run.
// The last row of a generation's block is never among them: the next block may go on with the same key.
func (m *merger) stretch(top *run, bound []byte) int {
	limit := top.block.keys.Len() - top.at
	if top.arrival > 0 {
		limit--
	}
	if limit == 0 {
		return 0
	}
	if second := m.second(); second != nil && (bound == nil || bytes.Compare(second.key, bound) < 0) {
		if second.prefix == top.prefix && bytes.Equal(second.key, top.key) {
			return 0
		}
		bound = second.key
	}
	return top.gallop(bound, limit)
}

// second is the run that comes first after the top of the heap.
func (m *merger) second() *run {
	switch {
	case len(m.heap) < 2:
		return nil
	case len(m.heap) == 2 || m.heap[1].before(m.heap[2]):
		return m.heap[1]
	}
	return m.heap[2]
}

// mergeKey folds all versions of the lowest key and emits the row that is kept.
func (m *merger) mergeKey(ctx context.Context) error {
	m.key = append(m.key[:0], m.heap[0].key...)
	m.fold.reset()
	var kept *block
	var row int
	defer func() {
		if kept != nil {
			kept.release()
		}
	}()
	for len(m.heap) > 0 && bytes.Equal(m.heap[0].key, m.key) {
		r := m.heap[0]
		sequence, err := r.block.sequence(r.at)
		if err != nil {
			return err
		}
		if m.fold.offer(r.block.operation(r.at), sequence) {
			if kept != r.block {
				if kept != nil {
					kept.release()
				}
				kept = r.block
				kept.retain()
			}
			row = r.at
		}
		if err := m.advance(ctx, r, 1); err != nil {
			return err
		}
	}
	if !m.fold.present {
		return nil
	}
	return m.out.emit(ctx, kept, row, row+1)
}

// advance moves the first run on by n rows and puts it in its place again.
func (m *merger) advance(ctx context.Context, top *run, n int) error {
	if at := top.at + n; at < top.block.keys.Len() {
		top.stand(at)
		m.down(0)
		return nil
	}
	ok, err := top.load(ctx)
	if err != nil || !ok {
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap[last] = nil
		m.heap = m.heap[:last]
		if err != nil {
			return err
		}
	}
	m.down(0)
	return nil
}

func (m *merger) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !m.heap[i].before(m.heap[parent]) {
			return
		}
		m.heap[i], m.heap[parent] = m.heap[parent], m.heap[i]
		i = parent
	}
}

func (m *merger) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(m.heap) {
			return
		}
		if right := child + 1; right < len(m.heap) && m.heap[right].before(m.heap[child]) {
			child = right
		}
		if !m.heap[child].before(m.heap[i]) {
			return
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}

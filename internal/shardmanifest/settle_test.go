package shardmanifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/objstore"
)

// model is a chain on a store that delays, repeats and loses puts: what exists, what is on its way, and what is true.
type model struct {
	objects  map[uint64]*Manifest // that exist, void ones included
	newest   *Manifest            // of the chain
	inFlight []*modelPut
	writers  []*modelWriter
	sealed   map[string]bool // path → in the chain; never leaves it
	unsealed map[string]bool // paths settled as unsealed
	names    int
}

type modelWriter struct {
	epoch   uint64
	id      string
	newest  *Manifest // as the writer knows it
	attempt *Attempt
	put     *Manifest // of the attempt
	fenced  bool      // it has noticed
}

type modelPut struct {
	manifest *Manifest
	attempt  *Attempt // whose answer this put gives
}

func newModel() *model {
	return &model{
		objects: map[uint64]*Manifest{}, newest: unborn("t", "s"), sealed: map[string]bool{}, unsealed: map[string]bool{},
	}
}

func (m *model) name(prefix string) string {
	m.names++
	return fmt.Sprintf("%s%d", prefix, m.names)
}

// store is what a put-if-absent does when it arrives. It reports whether the object was created.
func (m *model) store(t rapid.TB, next *Manifest) bool {
	if _, exists := m.objects[next.Version]; exists {
		return false
	}
	m.objects[next.Version] = next
	if next.Version != m.newest.Version+1 {
		return true // void: it arrived after its number had been used and deleted
	}
	body, err := Encode(next)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(body); err != nil {
		t.Fatalf("version %d cannot be read back: %v\n%s", next.Version, err, body)
	}
	m.checkStep(t, next)
	m.newest = next
	for _, g := range next.Generations {
		m.sealed[g.Path] = true
		if m.unsealed[g.Path] {
			t.Fatalf("%s was settled as unsealed and is sealed", g.Path)
		}
	}
	return true
}

func (m *model) checkStep(t rapid.TB, next *Manifest) {
	was := m.newest
	if next.Boundary < was.Boundary || next.Epoch < was.Epoch || next.SealedThrough < was.SealedThrough ||
		next.TrimmedThrough < was.TrimmedThrough || next.Bytes < was.Bytes || next.Rows < was.Rows {
		t.Fatalf("something was lowered:\n%+v\n%+v", was, next)
	}
	for _, g := range was.Generations {
		if kept, listed := next.Generation(g.Number); listed && kept.Path != g.Path {
			t.Fatalf("generation %d was replaced", g.Number)
		}
	}
}

// direct is an event whose put and answer arrive at once.
func (m *model) direct(t rapid.TB, ev event) {
	next, err := m.newest.after(ev, m.name("nonce"))
	if err != nil {
		return
	}
	if !m.store(t, next) {
		t.Fatalf("version %d of the newest chain is taken", next.Version)
	}
}

func (m *model) claim(t rapid.TB, id string) *modelWriter {
	w := &modelWriter{id: id}
	m.direct(t, claimEvent{writerID: w.id})
	if m.newest.WriterID != w.id {
		t.Skip("retired")
	}
	w.epoch, w.newest = m.newest.Epoch, m.newest
	return w
}

// pick draws one of the writers that fit, or skips the step.
func (m *model) pick(t *rapid.T, fits func(*modelWriter) bool) *modelWriter {
	var fitting []*modelWriter
	for _, w := range m.writers {
		if fits(w) {
			fitting = append(fitting, w)
		}
	}
	if len(fitting) == 0 {
		t.Skip("no such writer")
	}
	return fitting[rapid.IntRange(0, len(fitting)-1).Draw(t, "writer")]
}

func (m *model) send(w *modelWriter) {
	m.inFlight = append(m.inFlight, &modelPut{w.put, w.attempt})
}

// settle checks a settlement against the truth and lets the writer go on.
func (m *model) settle(t rapid.TB, w *modelWriter) Settlement {
	a := *w.attempt
	s := Settle(a, m.newest)
	listedClaim := slices.ContainsFunc(m.newest.Claims, func(c Claim) bool { return c.Epoch == a.Epoch+1 })
	switch s {
	case Sealed:
		if !m.sealed[a.Path] {
			t.Fatalf("%+v settled as sealed and is not, by %+v", a, m.newest)
		}
	case Unsealed:
		if m.sealed[a.Path] {
			t.Fatalf("%+v settled as unsealed and is sealed, by %+v", a, m.newest)
		}
		m.unsealed[a.Path] = true
	case InDoubt:
		if listedClaim || a.Generation > m.newest.TrimmedThrough {
			t.Fatalf("%+v is in doubt although it can be told, by %+v", a, m.newest)
		}
	case MustReissue:
		if m.newest.Version >= a.Version {
			t.Fatalf("%+v is to be sent again although its number is taken", a)
		}
		m.send(w)
		return s
	}
	w.attempt, w.put, w.newest = nil, nil, m.newest
	w.fenced = s == InDoubt
	return s
}

// attempt starts a seal; its put is on its way.
func (m *model) attempt(w *modelWriter) error {
	g := Generation{Path: m.name("file"), Rows: 1, Bytes: 10}
	next, err := w.newest.after(sealEvent{w.epoch, w.id, g}, m.name("nonce"))
	if err != nil {
		w.fenced = errors.Is(err, ErrFenced)
		return err
	}
	w.put = next
	w.attempt = &Attempt{Version: next.Version, Nonce: next.Nonce, Epoch: w.epoch, WriterID: w.id,
		Generation: next.SealedThrough, Path: g.Path, Answer: objstore.Unknown}
	m.send(w)
	return nil
}

// arrive is the arrival of a put, and of its answer unless that is lost.
func (m *model) arrive(t rapid.TB, p *modelPut, answerLost bool) {
	created := m.store(t, p.manifest)
	switch {
	case answerLost:
	case created || m.objects[p.manifest.Version].Nonce == p.manifest.Nonce:
		// The sender of an "exists" reads the object back and compares.
		p.attempt.Answer = objstore.Applied
	default:
		p.attempt.Answer = objstore.Refused
	}
}

func (m *model) clean() {
	maps.DeleteFunc(m.objects, func(v uint64, _ *Manifest) bool {
		return v <= m.newest.Boundary && !slices.ContainsFunc(m.newest.Trims, func(tr Trim) bool { return tr.Version == v })
	})
}

// TestASealIsSettledAsWhatIsTrue runs random histories of writers, claims, trims, retirement and cleanup over a store
// that delays, repeats and loses puts and answers, and compares every settlement with what the chain really holds.
func TestASealIsSettledAsWhatIsTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		m.writers = append(m.writers, m.claim(t, m.name("writer")))
		pick := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) { m.writers = append(m.writers, m.claim(t, m.name("writer"))) },
			"seal": func(t *rapid.T) {
				w := m.pick(t, func(w *modelWriter) bool { return w.attempt == nil && !w.fenced })
				if err := m.attempt(w); err != nil {
					t.Skip("refused")
				}
			},
			"arrive": func(t *rapid.T) {
				if len(m.inFlight) == 0 {
					t.Skip("nothing on its way")
				}
				i := pick("put", len(m.inFlight))
				p := m.inFlight[i]
				if !rapid.Bool().Draw(t, "again later") {
					m.inFlight = slices.Delete(m.inFlight, i, i+1)
				}
				m.arrive(t, p, rapid.Bool().Draw(t, "answer lost"))
			},
			"settle": func(t *rapid.T) {
				w := m.pick(t, func(w *modelWriter) bool { return w.attempt != nil })
				m.settle(t, w)
			},
			"trim": func(t *rapid.T) {
				m.direct(t, trimEvent{merged: uint64(pick("merged", int(m.newest.SealedThrough)+2))})
			},
			"clean": func(*rapid.T) { m.clean() },
			"many writers come and go": func(t *rapid.T) {
				for range 18 {
					w := m.claim(t, m.name("writer"))
					if rapid.Bool().Draw(t, "seals") {
						m.direct(t, sealEvent{w.epoch, w.id, Generation{Path: m.name("file"), Rows: 1, Bytes: 10}})
					}
				}
			},
			"everything is trimmed and cleaned": func(t *rapid.T) {
				m.direct(t, trimEvent{merged: m.newest.SealedThrough})
				for range versionsKept + 2 {
					m.claim(t, m.name("writer"))
				}
				m.clean()
			},
		})
		for len(m.inFlight) > 0 { // whatever is still on its way arrives in the end
			m.store(t, m.inFlight[0].manifest)
			m.inFlight = m.inFlight[1:]
		}
	})
}

func TestTheNameOfAVersionSortsTheNewestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64Min(1).Draw(t, "a"), rapid.Uint64Min(1).Draw(t, "b")
		if (a > b) != (manifestName(a) < manifestName(b)) {
			t.Fatalf("%d is %s, %d is %s", a, manifestName(a), b, manifestName(b))
		}
		if v, ok := parseManifestName(manifestName(a)); !ok || v != a {
			t.Fatal(v, ok)
		}
		if n, ok := parseGenerationName(generationName(a, "id")); !ok || n != a {
			t.Fatal(n, ok)
		}
	})
}

func TestCutKeysStillBoundTheKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 0xfe, 0xff}), 0, 40).Draw(t, "key")
		if lower := CutKeyMin(key); string(lower) > string(key) || len(lower) > keyBoundMax {
			t.Fatalf("%x is not below %x", lower, key)
		}
		upper := CutKeyMax(key)
		if len(upper) > keyBoundMax || len(upper) > 0 && string(upper) < string(key) {
			t.Fatalf("%x is not above %x", upper, key)
		}
	})
}

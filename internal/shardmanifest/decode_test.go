package shardmanifest

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
)

func sampleManifest(t testing.TB) []byte {
	s := objstore.NewMemory(clock.System())
	c := newChain(s, 1)
	h, err := c.Claim(t.Context(), ClaimOptions{Label: "host-1"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := h.Seal(t.Context(), file(h, 2)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := c.Trim(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	body, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestManifestsOfAnotherFormatAreRefusedAndNotGuessed(t *testing.T) {
	body := strings.Replace(string(sampleManifest(t)), `"format":1`, `"format":2`, 1)
	_, err := Decode([]byte(body))
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "2") {
		t.Fatal(err)
	}
}

func TestDamagedManifestsAreRefused(t *testing.T) {
	sample := string(sampleManifest(t))
	if _, err := Decode([]byte(sample)); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"version":`, `"version":0,"was":`},
		{`"boundary":0`, `"boundary":99`},
		{`"sealed_through":3`, `"sealed_through":4`},
		{`"trimmed_through":1`, `"trimmed_through":0`},
		{`"rows":6`, `"rows":7`},
		{`"cum_rows":4`, `"cum_rows":5`},
		{`"state":"open"`, `"state":"ajar"`},
		{`"epoch":1`, `"epoch":2`},
		{`"n":2`, `"n":3`},
		{`{"format"`, `{"Format":null,"was"`},
		{`}`, ``},
	} {
		body := strings.Replace(sample, change[0], change[1], 1)
		if body == sample {
			t.Errorf("%s is not in the sample", change[0])
		}
		if _, err := Decode([]byte(body)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s → %s: %v", change[0], change[1], err)
		}
	}
}

// FuzzDecode: no bytes make Decode panic, and what it accepts is a manifest on which every event gives another that can
// be stored and read back.
func FuzzDecode(f *testing.F) {
	f.Add(sampleManifest(f))
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(`{"format":18446744073709551616}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := Decode(body)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		again, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Decode(again); err != nil {
			t.Fatalf("%v\n%s", err, again)
		} else if third, _ := Encode(back); !bytes.Equal(again, third) {
			t.Fatalf("%s\n%s", again, third)
		}
		for _, ev := range []event{
			claimEvent{writerID: "w"}, sealEvent{m.Epoch, m.WriterID, Generation{}}, closeEvent{m.Epoch, m.WriterID},
			retireEvent{}, trimEvent{merged: m.SealedThrough},
		} {
			next, err := m.after(ev, "nonce")
			if err != nil || next.Version == ^uint64(0) {
				continue
			}
			body, err := Encode(next)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Decode(body); err != nil {
				t.Fatalf("%T: %v\n%s", ev, err, body)
			}
		}
	})
}

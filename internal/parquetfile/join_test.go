package parquetfile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"pgregory.net/rapid"

	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
)

// However whole files, recoded row groups and rows alternate, the file is that of the rows, and its statistics are theirs
// but for the bounds that footers do not tell.
func TestAJoinedFileIsThatOfItsRows(t *testing.T) {
	layout := layoutOf(t, recodedSchema)
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		var out bytes.Buffer
		mem, done := checked(r)
		defer done()
		w, err := parquetfile.NewWriter(&out, recodedSchema, parquetfile.WriterOptions{Mem: mem})
		if err != nil {
			r.Fatal(err)
		}
		defer w.Abort()
		var records []arrow.Record
		joined := false
		for range rapid.IntRange(1, 5).Draw(r, "parts") {
			rec := mixture(random, rapid.SampledFrom([]int{1, 100, 2000}).Draw(r, "rows"),
				rapid.SampledFrom([]int{1, 10, 1 << 30}).Draw(r, "distinct"), rapid.SampledFrom([]int{0, 1, 3}).Draw(r, "nulls"))
			records = append(records, rec)
			way := rapid.IntRange(0, 2).Draw(r, "way")
			if way == 0 {
				if err := w.Write(rec); err != nil {
					r.Fatal(err)
				}
				continue
			}
			body, _ := fileOf(t, rec)
			source := open(t, body)
			if !layout.Joins(source) || !w.Fits(source) {
				r.Fatal("a file of the same columns is not joined")
			}
			if way == 1 {
				raw, err := source.FetchRowGroup(t.Context(), 0)
				if err == nil {
					err = w.Recode(raw)
				}
				if err != nil {
					r.Fatal(err)
				}
				continue
			}
			joined = true
			if err := w.Join(source, func(int64, int64) error { return objstore.ErrNoCopy }); !errors.Is(err, objstore.ErrNoCopy) {
				r.Fatalf("joined without a copy: %v", err)
			}
			err := w.Join(source, func(offset, n int64) error {
				out.Write(body[offset : offset+n])
				return nil
			})
			if err != nil {
				r.Fatal(err)
			}
		}
		have, err := w.Close()
		if err != nil {
			r.Fatal(err)
		}
		plain, want := fileOf(t, records...)
		if have.Rows != want.Rows || have.Bytes != int64(out.Len()) || joined != (have.XXH3 == "") {
			r.Fatalf("%d rows in %d bytes, checksum %q; want %d in %d", have.Rows, have.Bytes, have.XXH3, want.Rows, out.Len())
		}
		if !joined && have.Stats.JSON() != want.Stats.JSON() {
			r.Fatalf("%s, want %s", have.Stats.JSON(), want.Stats.JSON())
		}
		expectFewerBounds(r, have.Stats.JSON(), want.Stats.JSON())
		again := open(t, out.Bytes())
		if err := again.Confirm(have.Stats); err != nil {
			r.Fatal(err)
		}
		if !slices.Equal(rowsOf(t, out.Bytes()), rowsOf(t, plain)) || !slices.Equal(arrowRows(t, out.Bytes()), arrowRows(t, plain)) {
			r.Fatal("its rows are others")
		}
	})
}

// expectFewerBounds fails unless statistics say nothing that others do not, and the same of nulls.
func expectFewerBounds(t *rapid.T, have, want string) {
	type statistics struct{ MinValues, MaxValues, NullCount map[string]json.RawMessage }
	var h, w statistics
	if err := errors.Join(json.Unmarshal([]byte(have), &h), json.Unmarshal([]byte(want), &w)); err != nil {
		t.Fatal(err)
	}
	for name, nulls := range w.NullCount {
		if !bytes.Equal(h.NullCount[name], nulls) {
			t.Fatalf("column %s: %s nulls, want %s", name, h.NullCount[name], nulls)
		}
	}
	for _, c := range []struct{ have, want map[string]json.RawMessage }{{h.MinValues, w.MinValues}, {h.MaxValues, w.MaxValues}} {
		for name, bound := range c.have {
			if !bytes.Equal(c.want[name], bound) {
				t.Fatalf("column %s: bound %s, want %s", name, bound, c.want[name])
			}
		}
	}
	for _, name := range []string{"id", "small", "at", "name"} {
		if w.MinValues[name] != nil && h.MinValues[name] == nil {
			t.Fatalf("column %s has lost its bounds", name)
		}
	}
}

// What a footer says against the statistics of the rows is found before a file is committed.
func TestAFooterThatContradictsTheStatisticsIsFound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	few, many := mixture(random, 500, 10, 3), mixture(random, 600, 50, 5)
	body, own := fileOf(t, few)
	_, other := fileOf(t, many)
	if err := open(t, body).Confirm(own.Stats); err != nil {
		t.Fatal(err)
	}
	if err := open(t, body).Confirm(other.Stats); err == nil {
		t.Fatal("the statistics of another file were confirmed")
	}
}

// Gaps between row groups, and columns that are others in anything, keep a file from being joined.
func TestOnlyOurOwnFilesWithoutGapsAreJoined(t *testing.T) {
	body, _ := fileOf(t, mixture(rand.New(rand.NewPCG(1, 1)), 100, 10, 5))
	if !layoutOf(t, recodedSchema).Joins(open(t, body)) {
		t.Fatal("our own file is not joined")
	}
	foreign := bytes.Replace(bytes.Clone(body), []byte("tidemark version"), []byte("somebody version"), 1)
	if layoutOf(t, recodedSchema).Joins(open(t, foreign)) {
		t.Error("a file of another writer is joined")
	}
	fields := slices.Clone(recodedSchema.Fields())
	fields[2].Nullable = false
	if layoutOf(t, arrow.NewSchema(fields, nil)).Joins(open(t, body)) {
		t.Error("a file with nulls is joined where none may be")
	}
}

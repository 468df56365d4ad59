package demand

import (
	"errors"
	"testing"
)

func TestARecordIsStoredAsWrittenDown(t *testing.T) {
	r := Record{
		TableID: "t-1", Incarnation: 1,
		Sealed:      &Mark{Gen: 1742, Epoch: 7, Bytes: 913000000, Rows: 12},
		Merged:      &Mark{Gen: 1690, Epoch: 7, Bytes: 5, Rows: 6},
		SealedTimes: []SealTime{{1691, 1791480000000}},
		Source:      Writer, UpdatedMS: 1791480000001,
	}
	want := `{"v":1,"table_id":"t-1","incarnation":1,` +
		`"sealed":{"gen":1742,"epoch":7,"bytes":913000000,"rows":12},` +
		`"merged":{"gen":1690,"epoch":7,"bytes":5,"rows":6},` +
		`"sealed_times":[[1691,1791480000000]],"source":"writer","updated_ms":1791480000001}`
	if got := string(r.Encode()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(Record{TableID: "t", Incarnation: 1, Source: Scan}.Encode()); got !=
		`{"v":1,"table_id":"t","incarnation":1,"source":"scan","updated_ms":0}` {
		t.Errorf("absent marks are not left out: %s", got)
	}
}

func TestAnUnknownVersionIsToldFromDamage(t *testing.T) {
	for value, want := range map[string]error{
		`{"v":999,"sealed":"something new"}`:    ErrFormat,
		`{}`:                                    ErrFormat,
		`{"v":1,"sealed":"something new"}`:      ErrDamaged,
		`{"v":1,"sealed_times":[[1]]}`:          ErrDamaged,
		`{"v":1,"sealed_times":[[-1,5]]}`:       ErrDamaged,
		`{"v":1,"sealed_times":[["1","5"]]}`:    ErrDamaged,
		`not json`:                              ErrDamaged,
		``:                                      ErrDamaged,
		`{"v":1,"sealed_times":[null],"x":"y"}`: ErrDamaged,
	} {
		if _, err := Parse([]byte(value)); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", value, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Record{TableID: "t", Sealed: &Mark{Gen: 3}, Merged: &Mark{Gen: 1}, SealedTimes: []SealTime{{2, 5}, {3, 6}}}.Encode())
	f.Add([]byte(`{"v":1,"sealed_times":[[5,1],[5,0],[4, 2]],"merged":{"gen":4}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := Parse(value)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrDamaged) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if len(r.SealedTimes) > timesMax {
			t.Fatalf("%d seal times", len(r.SealedTimes))
		}
		again, err := Parse(r.Encode())
		if err != nil || !again.Equal(r) {
			t.Fatalf("read back %+v (%v), want %+v", again, err, r)
		}
		_, _ = r.Pending()
		_ = r.Age(1)
	})
}

package rootlock

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Whatever stands in root.json, it is a record within its bounds or a typed error, and a record reads back as it is.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"format":1,"cluster":"default","id":"x"}`))
	f.Add([]byte(`{"format":1,"kind":"standalone","id":"x","lease_ms":30000,"holder":"host"}`))
	f.Add([]byte(`{"format":1,"kind":"released","id":"x"}`))
	f.Add([]byte(`{"format":1,"kind":"standalone","id":"../x","lease_ms":1}`))
	f.Add([]byte(`{"format":99,"id":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Parse(body)
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		lease := time.Duration(r.LeaseMS) * time.Millisecond
		if r.ID == "" || strings.Contains(r.ID, "/") || r.LeaseMS != 0 && (lease < LeaseMin || lease > LeaseMax) {
			t.Fatalf("%s was accepted as %+v", body, r)
		}
		if r.describe() == "" {
			t.Fatalf("%+v has no description", r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Parse(again); err != nil || !reflect.DeepEqual(back, r) {
			t.Fatalf("%s became %s, which is %+v (%v)", body, again, back, err)
		}
	})
}

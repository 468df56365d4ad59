package turnset

import (
	"encoding/json"
	"testing"
)

// A set of turns is read only as it is written, in a key and in a value.
func FuzzParse(f *testing.F) {
	f.Add("ffff", []byte(`"log"`))
	f.Add("log", []byte(`[0,15]`))
	f.Add("00FF", []byte(`[16]`))
	f.Fuzz(func(t *testing.T, text string, value []byte) {
		if s, err := Parse(text); err == nil && (!s.Valid() || s.String() != text) {
			t.Fatalf("%q was read as %v", text, s)
		}
		var s Set
		if json.Unmarshal(value, &s) != nil {
			return
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Set
		if err := json.Unmarshal(again, &back); err != nil || back != s {
			t.Fatalf("%s was read as %v, written as %s, and read as %v (%v)", value, s, again, back, err)
		}
	})
}

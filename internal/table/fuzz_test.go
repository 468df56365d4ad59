package table

import (
	"strings"
	"testing"

	"tidemark/internal/deltalog"
)

// A name that is accepted stays inside the root and cannot be taken for anything of Tidemark's own.
func FuzzCheckName(f *testing.F) {
	for _, name := range []string{"flights", "prod/events", "../x", "a//b", "_tidemark", "a/.b", "a\x00b", "a%2Fb"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) != nil {
			return
		}
		for _, segment := range strings.Split(name, "/") {
			if segment == "" || segment[0] == '_' || segment[0] == '.' {
				t.Fatalf("%q was accepted", name)
			}
		}
	})
}

// Settings that are accepted are exactly those that would be written.
func FuzzParseSettings(f *testing.F) {
	f.Add("append", "", "", "", "1")
	f.Add("upsert", "id", "seq", "16", "2")
	f.Add("upsert", "a,b", "", "0", "-1")
	f.Fuzz(func(t *testing.T, mode, key, sequence, buckets, incarnation string) {
		c := map[string]string{
			deltalog.PropertyMode: mode, deltalog.PropertyKey: key, deltalog.PropertySequence: sequence,
			deltalog.PropertyBuckets: buckets, deltalog.PropertyIncarnation: incarnation,
		}
		m := deltalog.Metadata{ID: "T", Configuration: c}
		if _, err := ParseSettings(m); err == nil {
			t.Fatalf("%v was accepted without a seal", c)
		}
		s := Settings{Mode: Mode(mode), Sequence: sequence, Incarnation: 1}
		if key != "" {
			s.Key = strings.Split(key, ",")
		}
		m.Configuration = s.properties("T")
		if got, err := ParseSettings(m); err == nil && got.seal("T") != s.seal("T") {
			t.Fatalf("%v was read as %+v", m.Configuration, got)
		}
	})
}

package table

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"tidemark/internal/deltalog"
)

// Mode is how the generations of a table are merged.
type Mode string

// The modes.
const (
	Append Mode = "append" // rows are added
	Upsert Mode = "upsert" // the newest version of each key stays
)

const (
	bucketsDefault = 8
	bucketsMax     = 4096

	// propertySeal guards the settings: it is the fingerprint of all that is fixed at creation.
	propertySeal = "tidemark.seal"
)

// Settings are a table's own properties, under "tidemark." in its configuration. All but State and Policy are fixed at
// creation.
type Settings struct {
	Mode        Mode
	Key         []string // the key columns of an upsert table, in order
	Sequence    string   // the column that decides between versions of a key, or ""
	Buckets     int      // of an upsert table
	Incarnation int64    // 1 for the first life of a name
	Dropped     bool
	State       string            // such as "paused"; "" is active
	Policy      map[string]string // overrides of the policy, by name without "tidemark.policy."
}

// Adopted reports whether a description is of a table that Tidemark created or adopted.
func Adopted(m deltalog.Metadata) bool { return m.Configuration[deltalog.PropertyMode] != "" }

// ParseSettings reads a table's settings. Of a Delta table that is not Tidemark's the error is ErrNotAdopted; of one
// whose settings make no sense or were changed since it was created it is a *SettingsError.
func ParseSettings(m deltalog.Metadata) (Settings, error) {
	c := m.Configuration
	if !Adopted(m) {
		return Settings{}, ErrNotAdopted
	}
	fail := func(format string, args ...any) (Settings, error) {
		return Settings{}, &SettingsError{m.ID, fmt.Sprintf(format, args...)}
	}
	s := Settings{
		Mode: Mode(c[deltalog.PropertyMode]), Sequence: c[deltalog.PropertySequence],
		Dropped: c[deltalog.PropertyDropped] != "", State: c[deltalog.PropertyState], Policy: map[string]string{},
	}
	if s.Mode != Append && s.Mode != Upsert {
		return fail("%s is %q; want append or upsert", deltalog.PropertyMode, s.Mode)
	}
	if key := c[deltalog.PropertyKey]; key != "" {
		s.Key = strings.Split(key, ",")
	}
	var err error
	if s.Incarnation, err = strconv.ParseInt(c[deltalog.PropertyIncarnation], 10, 64); err != nil || s.Incarnation < 1 {
		return fail("%s is %q; want a number above zero", deltalog.PropertyIncarnation, c[deltalog.PropertyIncarnation])
	}
	if s.Mode == Upsert {
		if s.Buckets, err = strconv.Atoi(c[deltalog.PropertyBuckets]); err != nil || s.Buckets < 1 || s.Buckets > bucketsMax {
			return fail("%s is %q; want 1 to %d", deltalog.PropertyBuckets, c[deltalog.PropertyBuckets], bucketsMax)
		}
		if len(s.Key) == 0 {
			return fail("an upsert table needs %s", deltalog.PropertyKey)
		}
	}
	if want := s.seal(m.ID); c[propertySeal] != want {
		return fail("they were changed after the table was created (%s is %q, and the settings give %q)", propertySeal, c[propertySeal], want)
	}
	for name, value := range c {
		if short, ok := strings.CutPrefix(name, deltalog.PropertyPolicy); ok {
			s.Policy[short] = value
		}
	}
	return s, nil
}

// properties are the settings as they stand in a table's configuration.
func (s Settings) properties(id string) map[string]string {
	c := map[string]string{
		deltalog.PropertyMode:        string(s.Mode),
		deltalog.PropertyIncarnation: strconv.FormatInt(s.Incarnation, 10),
		propertySeal:                 s.seal(id),
	}
	if s.Mode == Upsert {
		c[deltalog.PropertyKey] = strings.Join(s.Key, ",")
		c[deltalog.PropertyBuckets] = strconv.Itoa(s.Buckets)
		if s.Sequence != "" {
			c[deltalog.PropertySequence] = s.Sequence
		}
	}
	return c
}

// seal is the fingerprint of what must never change within a life of the table.
func (s Settings) seal(id string) string {
	fixed := []string{id, string(s.Mode), strings.Join(s.Key, ","), s.Sequence, strconv.Itoa(s.Buckets), strconv.FormatInt(s.Incarnation, 10)}
	return fmt.Sprintf("%016x", xxh3.HashString(strings.Join(fixed, "\n")))
}

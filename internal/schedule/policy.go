package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"tidemark/internal/turnset"
)

// PropertyPrefix starts the table properties that override the default policy, for example
// "tidemark.policy.max_age" = "60s".
const PropertyPrefix = "tidemark.policy."

// Groups per table is fixed: group = xxh3(shard) mod 16. It bounds every loop over groups, the size of a release and
// max_parallelism.
const GroupCount = turnset.Groups

// Policy says when a table's work is due and how it is shared out. The zero value is not valid; start from
// DefaultPolicy.
type Policy struct {
	MinGenerations       int64         // pending generations that make a merge worth while by themselves
	MinBytes             int64         // pending bytes that do
	MaxAge               time.Duration // an exactly known age of this much doubles a score
	MaxWait              time.Duration // work that has waited this long is critical
	CriticalGenerations  int64         // a table with this many pending generations is critical
	MaxConsecutiveMerges int64         // merges in a row before due maintenance goes first
	MaxParallelism       int64         // executions that may merge one table at once, 1 to 16
	UnitBytes            int64         // pending bytes for which one more unit is worth while
	UnitGenerations      int64         // pending generations for which one is
	CompactFiles         int64         // base files fewer for which a compaction is worth while; 0 is never
}

// DefaultPolicy is what holds where neither the table nor the cluster says otherwise.
//
// MaxParallelism is 4: commits of one table are put one after another, each rebasing over those before it, and with four
// executions that costs a few hundredths of a merge, while sixteen would let one hot table occupy a small fleet.
// UnitBytes is 256 MiB, some seconds of one executor's work, so that what cutting costs (one more commit, one more
// rebase) stays small beside it. UnitGenerations is 256, the files that one execution opens without effort. CompactFiles
// is 32: every reader of the table opens that many files more than it would have to, at most, and a byte of a table that
// grows by small files is rewritten about three times before it lies in a full one.
func DefaultPolicy() Policy {
	return Policy{
		MinGenerations:       8,
		MinBytes:             64 << 20,
		MaxAge:               300 * time.Second,
		MaxWait:              600 * time.Second,
		CriticalGenerations:  256,
		MaxConsecutiveMerges: 2,
		MaxParallelism:       4,
		UnitBytes:            256 << 20,
		UnitGenerations:      256,
		CompactFiles:         32,
	}
}

// PolicyError names a policy value that cannot be used. The other values of the same policy stay in force.
type PolicyError struct {
	Key    string
	Value  string
	Reason string
}

// Code is the stable code of the error.
func (e *PolicyError) Code() string { return "policy_invalid" }

func (e *PolicyError) Error() string {
	return fmt.Sprintf("policy %s = %q is not usable: %s", e.Key, e.Value, e.Reason)
}

// unitOf says how a policy value is written.
type unitOf int

const (
	counted  unitOf = iota // a whole number
	sized                  // bytes: a whole number, or one with KiB, MiB, GiB, TiB
	duration               // Go duration text ("90s", "5m"), or a whole number of seconds
)

// field is one row of the policy table: its name, how it is written, its range and where it is kept.
type field struct {
	name     string
	unit     unitOf
	min, max int64 // in the field's own unit; durations in nanoseconds
	help     string
	get      func(*Policy) *int64
}

// fields is the whole policy. Ranges keep the arithmetic of scores finite and the loops bounded: 4,096 is the most
// pending generations that a shard can have, a week outlasts every retention that a merge depends on.
var fields = []field{
	{"min_generations", counted, 1, 4096, "pending generations that make a merge worth while",
		func(p *Policy) *int64 { return &p.MinGenerations }},
	{"min_bytes", sized, 1, 1 << 50, "pending bytes that make a merge worth while",
		func(p *Policy) *int64 { return &p.MinBytes }},
	{"max_age", duration, int64(time.Second), int64(7 * 24 * time.Hour), "age that doubles a score",
		func(p *Policy) *int64 { return (*int64)(&p.MaxAge) }},
	{"max_wait", duration, int64(time.Second), int64(7 * 24 * time.Hour), "wait that makes any work critical",
		func(p *Policy) *int64 { return (*int64)(&p.MaxWait) }},
	{"critical_generations", counted, 1, 1 << 20, "pending generations that make a table critical",
		func(p *Policy) *int64 { return &p.CriticalGenerations }},
	{"max_consecutive_merges", counted, 1, 1 << 20, "merges in a row before due maintenance goes first",
		func(p *Policy) *int64 { return &p.MaxConsecutiveMerges }},
	{"max_parallelism", counted, 1, GroupCount, "executions that may merge the table at once",
		func(p *Policy) *int64 { return &p.MaxParallelism }},
	{"unit_bytes", sized, 1 << 20, 1 << 50, "pending bytes per unit when a backlog is cut",
		func(p *Policy) *int64 { return &p.UnitBytes }},
	{"unit_generations", counted, 1, 1 << 20, "pending generations per unit when a backlog is cut",
		func(p *Policy) *int64 { return &p.UnitGenerations }},
	{"compact_files", counted, 0, 1 << 20, "small base files that compaction would save which make it worth while; 0 never compacts",
		func(p *Policy) *int64 { return &p.CompactFiles }},
}

// PolicyKeys lists the names of all policy values with a line of help each, in the order of documentation.
func PolicyKeys() (names, help []string) {
	for _, f := range fields {
		names, help = append(names, f.name), append(help, f.help)
	}
	return names, help
}

// With returns p with the given values in force, by name without prefix. Values that cannot be used are left as they
// were in p and reported, each as a *PolicyError, in one joined error.
func (p Policy) With(values map[string]string) (Policy, error) {
	var errs []error
	for _, name := range sortedKeys(values) {
		f := fieldNamed(name)
		if f == nil {
			known, _ := PolicyKeys()
			errs = append(errs, &PolicyError{name, values[name], "no such policy; known are " + strings.Join(known, ", ")})
			continue
		}
		n, err := f.parse(values[name])
		if err != nil {
			errs = append(errs, &PolicyError{name, values[name], err.Error()})
			continue
		}
		*f.get(&p) = n
	}
	return p, errors.Join(errs...)
}

// Overrides picks the policy values out of a table's properties and strips their prefix.
func Overrides(properties map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range properties {
		if name, ok := strings.CutPrefix(k, PropertyPrefix); ok {
			out[name] = v
		}
	}
	return out
}

// Values writes every value as text that With reads back.
func (p Policy) Values() map[string]string {
	out := make(map[string]string, len(fields))
	for _, f := range fields {
		out[f.name] = f.format(*f.get(&p))
	}
	return out
}

// policyDocument is the JSON of a default policy, in storage and in etcd.
type policyDocument struct {
	V      int               `json:"v"`
	Values map[string]string `json:"policy"`
}

// MarshalPolicy writes values (see With) as the JSON document that is kept in storage and copied to etcd.
func MarshalPolicy(values map[string]string) ([]byte, error) {
	return json.Marshal(policyDocument{V: 1, Values: values})
}

// ParsePolicy reads a default policy document. Values that it does not name, or that cannot be used, are those of
// DefaultPolicy; the error then says which and why, and the returned policy is usable all the same.
func ParsePolicy(doc []byte) (Policy, error) {
	var d policyDocument
	if err := json.Unmarshal(doc, &d); err != nil {
		return DefaultPolicy(), fmt.Errorf("default policy is not JSON: %w", err)
	}
	if d.V != 1 {
		return DefaultPolicy(), fmt.Errorf("default policy has version %d, and this program knows version 1", d.V)
	}
	return DefaultPolicy().With(d.Values)
}

func fieldNamed(name string) *field {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

func (f *field) parse(text string) (int64, error) {
	n, err := f.unit.parse(strings.TrimSpace(text))
	if err != nil {
		return 0, err
	}
	if n < f.min || n > f.max {
		return 0, fmt.Errorf("must be from %s to %s", f.format(f.min), f.format(f.max))
	}
	return n, nil
}

func (f *field) format(n int64) string {
	if f.unit == duration {
		return time.Duration(n).String()
	}
	return strconv.FormatInt(n, 10)
}

var suffixes = []struct {
	text  string
	shift uint
}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}

func (u unitOf) parse(text string) (int64, error) {
	plain, err := strconv.ParseInt(text, 10, 64)
	switch u {
	case sized:
		for _, s := range suffixes {
			digits, ok := strings.CutSuffix(text, s.text)
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
			if err != nil || n < 0 || n > (1<<62)>>s.shift {
				return 0, errors.New("not a number of bytes; write for example 67108864 or 64MiB")
			}
			return n << s.shift, nil
		}
		if err != nil {
			return 0, errors.New("not a number of bytes; write for example 67108864 or 64MiB")
		}
	case duration:
		if err == nil {
			if plain < 0 || plain > int64(1<<62)/int64(time.Second) {
				return 0, errors.New("out of range")
			}
			return plain * int64(time.Second), nil
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, errors.New("not a duration; write for example 90s, 5m or a number of seconds")
		}
		return int64(d), nil
	default:
		if err != nil {
			return 0, errors.New("not a whole number")
		}
	}
	return plain, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

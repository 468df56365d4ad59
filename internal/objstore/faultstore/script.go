package faultstore

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"tidemark/internal/objstore"
)

type kind int

const (
	failBeforeSend kind = iota + 1
	refuse
	throttle
	unknown
	hang
	slow
)

type landing int

const (
	neverLands landing = iota + 1
	applied
	landsAfter
	landsWhenTold
)

type fault struct {
	kind    kind
	landing landing       // of unknown and hang
	ops     int           // of landsAfter
	delay   time.Duration // of slow
}

type rule struct {
	text     string // as written
	line     int
	op       string // or opAny
	pattern  string
	from, to int // which matching operations are picked, from 1
	fault    fault

	seen  int // matching operations so far
	fired int // picked ones that no earlier rule has decided
}

const opAny = "any"

// operations tells which operations change something, and so can land.
var operations = map[string]bool{
	objstore.OpGet: false, objstore.OpGetRange: false, objstore.OpHead: false, objstore.OpList: false,
	objstore.OpPutIfAbsent: true, objstore.OpReplaceIfMatch: true, objstore.OpDelete: true,
	objstore.OpCreate: false, objstore.OpWrite: false, objstore.OpCopyRange: false, objstore.OpComplete: true, objstore.OpAbort: false,
	opAny: true,
}

// parse reads a script. Its errors begin with the number of the line, from 1.
func parse(script string) ([]*rule, error) {
	var rules []*rule
	var errs []error
	line := 0
	for text := range strings.Lines(script) {
		line++
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		r, err := parseRule(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", line, err))
			continue
		}
		r.line = line
		rules = append(rules, r)
	}
	return rules, errors.Join(errs...)
}

func parseRule(text string) (*rule, error) {
	what, how, found := strings.Cut(text, ": ")
	if !found {
		return nil, fmt.Errorf("%q has no fault; write OP PATTERN [#N]: FAULT", text)
	}
	fields := strings.Fields(what)
	if len(fields) < 2 || len(fields) > 3 {
		return nil, fmt.Errorf("%q is not an operation, a pattern and perhaps a count", what)
	}
	r := &rule{text: text, op: fields[0], pattern: fields[1], from: 1, to: math.MaxInt}
	mutates, known := operations[r.op]
	if !known {
		return nil, fmt.Errorf("unknown operation %q", r.op)
	}
	if len(fields) == 3 {
		var err error
		if r.from, r.to, err = parseCount(fields[2]); err != nil {
			return nil, err
		}
	}
	var err error
	if r.fault, err = parseFault(how); err != nil {
		return nil, err
	}
	if lands := r.fault.landing > neverLands; lands && !mutates {
		return nil, fmt.Errorf("%s changes nothing, so it cannot land", r.op)
	}
	return r, nil
}

func parseCount(s string) (from, to int, err error) {
	bad := fmt.Errorf("%q is not a count; write #2, #2-4 or #2+", s)
	number, found := strings.CutPrefix(s, "#")
	if !found {
		return 0, 0, bad
	}
	to = math.MaxInt
	first, open := strings.CutSuffix(number, "+")
	first, last, isRange := strings.Cut(first, "-")
	if open && isRange {
		return 0, 0, bad
	}
	if from, err = strconv.Atoi(first); err != nil || from < 1 {
		return 0, 0, bad
	}
	switch {
	case isRange:
		if to, err = strconv.Atoi(last); err != nil || to < from {
			return 0, 0, bad
		}
	case !open:
		to = from
	}
	return from, to, nil
}

func parseFault(s string) (fault, error) {
	s = strings.Join(strings.Fields(s), " ")
	name, rest, hasRest := strings.Cut(s, ", ")
	switch {
	case s == "fail before send":
		return fault{kind: failBeforeSend}, nil
	case s == "refuse":
		return fault{kind: refuse}, nil
	case s == "throttle":
		return fault{kind: throttle, landing: neverLands}, nil
	case strings.HasPrefix(s, "slow "):
		delay, err := time.ParseDuration(strings.TrimPrefix(s, "slow "))
		if err != nil || delay < 0 {
			return fault{}, fmt.Errorf("%q is not a duration such as 90s", strings.TrimPrefix(s, "slow "))
		}
		return fault{kind: slow, delay: delay}, nil
	case (name == "unknown" || name == "hang") && hasRest:
		f, err := parseLanding(rest)
		f.kind = unknown
		if name == "hang" {
			f.kind = hang
		}
		return f, err
	case name == "unknown" || name == "hang":
		return fault{}, fmt.Errorf("%q must say what becomes of the request: applied, lands after N ops, lands when told or never lands", s)
	}
	return fault{}, fmt.Errorf("unknown fault %q", s)
}

func parseLanding(s string) (fault, error) {
	switch s {
	case "applied":
		return fault{landing: applied}, nil
	case "lands when told":
		return fault{landing: landsWhenTold}, nil
	case "never lands":
		return fault{landing: neverLands}, nil
	}
	fields := strings.Fields(s)
	if len(fields) == 4 && fields[0] == "lands" && fields[1] == "after" && (fields[3] == "ops" || fields[3] == "op") {
		if n, err := strconv.Atoi(fields[2]); err == nil && n > 0 {
			return fault{landing: landsAfter, ops: n}, nil
		}
	}
	return fault{}, fmt.Errorf("unknown landing %q; write applied, lands after N ops, lands when told or never lands", s)
}

// match reports whether a name matches a pattern in which * stands for any run of characters.
func match(pattern, name string) bool {
	literal, rest, star := strings.Cut(pattern, "*")
	name, found := strings.CutPrefix(name, literal)
	if !found || !star {
		return found && name == ""
	}
	for {
		literal, rest, star = strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(name, literal)
		}
		at := strings.Index(name, literal)
		if at < 0 {
			return false
		}
		name = name[at+len(literal):]
	}
}

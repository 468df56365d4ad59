package table

import (
	"fmt"
	"strings"
)

const (
	// nameMax leaves room below S3's limit of 1,024 bytes for a shard's and a file's part of the key.
	nameMax = 256
	// segmentsMax bounds the depth of every search for tables.
	segmentsMax = 8
)

// CheckName refuses names that cannot be a table's: a name is one to eight segments of letters, digits, "_", "-" and
// ".", separated by "/", none beginning with "_" or ".", which other engines and Tidemark keep for themselves.
func CheckName(name string) error {
	switch {
	case name == "":
		return &NameError{name, "it is empty"}
	case len(name) > nameMax:
		return &NameError{name[:32] + "…", fmt.Sprintf("it is longer than %d bytes", nameMax)}
	}
	segments := strings.Split(name, "/")
	if len(segments) > segmentsMax {
		return &NameError{name, fmt.Sprintf("it has more than %d segments", segmentsMax)}
	}
	for _, s := range segments {
		if s == "" {
			return &NameError{name, "it has an empty segment; write it like flights or prod/events"}
		}
		if hidden(s) {
			return &NameError{name, fmt.Sprintf("the segment %q begins with %q, which is kept for logs and shards", s, s[:1])}
		}
		for _, c := range s {
			if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_-.", c)) {
				return &NameError{name, fmt.Sprintf("it contains %q; use letters, digits, _, - and .", c)}
			}
		}
	}
	return nil
}

func hidden(segment string) bool { return segment[0] == '_' || segment[0] == '.' }

// distance is the number of characters to change, add or leave out between two names, as far as it matters: above max
// it is max+1.
func distance(a, b string, max int) int {
	if len(a)-len(b) > max || len(b)-len(a) > max {
		return max + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return min(row[len(b)], max+1)
}

package deltalog

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestDecide replays the stories in testdata/decide. A story has the commands
//
//	table [upsert]     what the plan was made from: lines "file PATH [BUCKET]", "mark SHARD N", "property K=V"
//	plan               the intent: "merge SHARD FROM->TO", "add PATH [BUCKET]", "remove PATH", "touch BUCKET",
//	                   "execution ID", "schema S", "property K=V", "whole"
//	since              what was committed meanwhile: "vN by WHO [execution ID]", then indented actions
//	decide             prints the verdict
func TestDecide(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		var s story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "table":
				s = newStory(d.HasArg("upsert"))
				s.lines(t, d.Input, s.tableLine)
			case "plan":
				s.intent = Intent{TableID: "T", Read: s.read, Upsert: s.upsert, Marks: map[string]MarkChange{}}
				s.since = nil
				s.lines(t, d.Input, s.planLine)
			case "since":
				s.since = nil
				s.lines(t, d.Input, s.commitLine)
			case "decide":
				v := Decide(s.intent, s.since)
				return fmt.Sprintf("%v: %s\n", v.Kind, v.Reason)
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return ""
		})
	})
}

type story struct {
	upsert bool
	read   *Snapshot
	intent Intent
	since  []Commit
}

func newStory(upsert bool) story {
	c := map[string]string{PropertyMode: "append"}
	if upsert {
		c[PropertyMode] = modeUpsert
	}
	m := Metadata{ID: "T", SchemaString: "S", Configuration: c}.normal()
	return story{upsert: upsert, read: &Snapshot{Version: 4, Metadata: m, Protocol: NewProtocol(upsert, false)}}
}

func (s *story) lines(t *testing.T, input string, take func(words []string) bool) {
	t.Helper()
	for line := range strings.SplitSeq(input, "\n") {
		if words := strings.Fields(line); len(words) > 0 && !take(words) {
			t.Fatalf("cannot understand %q", line)
		}
	}
}

func (s *story) tableLine(w []string) bool {
	switch w[0] {
	case "file":
		s.read.setFile(newFile(storyAdd(w)))
	case "mark":
		s.read.setTxn(Txn{AppID: AppID("T", w[1]), Version: number(w[2])})
	case "property":
		k, v, _ := strings.Cut(w[1], "=")
		s.read.Metadata.Configuration[k] = v
	default:
		return false
	}
	return true
}

func (s *story) planLine(w []string) bool {
	in := &s.intent
	switch w[0] {
	case "merge":
		from, to, _ := strings.Cut(w[2], "->")
		in.Marks[AppID("T", w[1])] = MarkChange{number(from), number(to)}
	case "add":
		in.Adds = append(in.Adds, storyAdd(w))
	case "remove":
		in.Removes = append(in.Removes, Remove{Path: w[1], DataChange: true})
	case "touch":
		in.Buckets = append(in.Buckets, w[1])
	case "execution":
		in.Info.ExecutionID = w[1]
	case "schema":
		m := s.read.Metadata
		m.SchemaString = w[1]
		in.Metadata = &m
	case "property":
		m := s.read.Metadata
		m.Configuration = maps.Clone(m.Configuration)
		k, v, _ := strings.Cut(w[1], "=")
		m.Configuration[k] = v
		in.Metadata = &m
	case "whole":
		in.Whole = true
	default:
		return false
	}
	return true
}

func (s *story) commitLine(w []string) bool {
	if v, ok := strings.CutPrefix(w[0], "v"); ok && len(w) >= 3 && w[1] == "by" {
		c := Commit{Version: number(v), Info: CommitInfo{Engine: w[2]}}
		if w[2] == "tidemark" {
			c.Info.Engine = Engine
		}
		if len(w) == 5 {
			c.Info.ExecutionID = w[4]
		}
		s.since = append(s.since, c)
		return true
	}
	if len(s.since) == 0 {
		return false
	}
	c := &s.since[len(s.since)-1]
	metadata := func() *Metadata {
		if c.Metadata == nil {
			m := s.read.Metadata
			m.Configuration = maps.Clone(m.Configuration)
			c.Metadata = &m
		}
		return c.Metadata
	}
	switch w[0] {
	case "txn":
		c.Txns = append(c.Txns, Txn{AppID: AppID("T", w[1]), Version: number(w[2])})
	case "add":
		c.Adds = append(c.Adds, storyAdd(w))
	case "remove":
		c.Removes = append(c.Removes, Remove{Path: w[1], DataChange: true})
	case "schema":
		metadata().SchemaString = w[1]
	case "id":
		metadata().ID = w[1]
	case "property":
		k, v, set := strings.Cut(w[1], "=")
		if set {
			metadata().Configuration[k] = v
		} else {
			delete(metadata().Configuration, k)
		}
	case "feature":
		p := s.read.Protocol.With(w[1])
		c.Protocol = &p
	default:
		return false
	}
	return true
}

func storyAdd(w []string) Add {
	a := Add{Path: w[1], DataChange: true}
	if len(w) > 2 {
		a.Tags = map[string]string{TagBucket: w[2]}
	}
	return a
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

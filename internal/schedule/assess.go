package schedule

import "tidemark/internal/turnset"

// assessment is the linear pass over a table's shards: what counts, per group, and why the rest does not.
type assessment struct {
	groups    [GroupCount]groupState
	countable Groups  // free groups in which something counts
	available Groups  // free groups, whether anything is pending or not
	populated Groups  // groups that have shards
	free      Backlog // sum over countable
	unknown   int     // shards with an unknown mark
	waiting   int     // shards that have something pending which may count later without a failure in between
	running   int     // executions that hold turns of groups
	next      int64   // the earliest time at which a wait ends; 0 = none
}

// groupState is one group's part of an assessment.
type groupState struct {
	backlog Backlog // shards that count
	code    Code    // why nothing counts, or CodeCaughtUp
	until   int64
	blocked int64 // the group's own backoff; 0 = none
	held    int64 // it was released and waits for a change until then; 0 = does not
	news    int64 // the same, for shards whose demand the execution had not seen
	failing bool  // it has shards with failures, so shards must be looked up
}

// assess judges all shards of a table.
func assess(in *Input) *assessment {
	a := &assessment{}
	a.judgeGroups(in)
	for i := range in.Shards {
		s := &in.Shards[i]
		g := &a.groups[s.Group]
		a.populated |= turnset.Of(s.Group)
		code, until := a.judge(in, s)
		switch code {
		case "":
			g.backlog.add(s.backlog(in.NowMS))
			continue
		case CodeUnknown:
			a.unknown++
		case CodeReleased, CodeRunning:
			a.waiting++
		}
		if code != CodeCaughtUp {
			a.next = earliest(a.next, until)
		}
		switch w := weight(code); {
		case w > weight(g.code):
			g.code, g.until = code, until
		case w > 0 && w == weight(g.code):
			g.until = earliest(g.until, until)
		}
	}
	for i := range a.groups {
		g := &a.groups[i]
		if in.Groups[i].Execution != "" || g.blocked != 0 {
			continue
		}
		a.available |= turnset.Of(i)
		if g.backlog.Gens > 0 {
			a.countable |= turnset.Of(i)
			a.free.add(g.backlog)
		}
	}
	return a
}

// judgeGroups does what concerns whole groups once, before the pass over the shards.
func (a *assessment) judgeGroups(in *Input) {
	executions := map[string]bool{}
	for i := range in.Groups {
		t, g := &in.Groups[i], &a.groups[i]
		g.code = CodeCaughtUp
		if t.Execution != "" {
			executions[t.Execution] = true
			g.code = CodeRunning
		}
		if t.Last == nil {
			continue
		}
		g.failing = len(t.Last.Shards) > 0
		if until, blocked := t.Last.groupBlock(t.SeenMS, in.NowMS); blocked {
			g.blocked = until
		}
		if held := t.Last.heldUntil(t.SeenMS); in.NowMS < held {
			g.held = held
			if news := min(held, t.SeenMS+publishGrace.Milliseconds()); in.NowMS < news {
				g.news = news
			}
		}
	}
	a.running = len(executions)
}

// judge says why a shard does not count, and until when; the empty code counts.
func (a *assessment) judge(in *Input, s *Shard) (Code, int64) {
	switch {
	case s.Stopped:
		return CodeRegressed, 0
	case !s.Known:
		return CodeUnknown, 0
	case s.Gens == 0:
		return CodeCaughtUp, 0
	}
	t, g := &in.Groups[s.Group], &a.groups[s.Group]
	failed := false
	if g.failing {
		f, until, blocked := t.Last.shardBlock(s.Name, s.Merged, t.SeenMS, in.NowMS)
		if blocked {
			return CodeBackoff, until
		}
		failed = f.Code != ""
	}
	switch {
	case t.Execution != "":
		return CodeRunning, 0
	case g.blocked != 0:
		return CodeGroupWait, g.blocked
	}
	held := g.held
	if held != 0 && !t.Last.saw(s.Revision) {
		held = g.news
	}
	if held != 0 && !failed && s.Revision <= t.Revision {
		return CodeReleased, held
	}
	return "", 0
}

// backlog is what a shard that counts adds to its group.
func (s *Shard) backlog(nowMS int64) Backlog {
	b := Backlog{Shards: 1, Gens: s.Gens, Bytes: max(s.Bytes, 0), OldestMS: min(s.OldestMS, nowMS)}
	if s.Exact {
		b.ExactMS = b.OldestMS
	}
	return b
}

// weight says which of several reasons speaks for a group in which nothing counts.
func weight(c Code) int {
	switch c {
	case CodeRunning:
		return 6
	case CodeGroupWait:
		return 5
	case CodeReleased:
		return 4
	case CodeBackoff:
		return 3
	case CodeUnknown:
		return 2
	case CodeRegressed:
		return 1
	}
	return 0
}

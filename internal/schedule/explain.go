package schedule

import (
	"fmt"
	"time"

	"tidemark/internal/turnset"
)

// Explanation is what `tidemark explain` shows of a table.
type Explanation struct {
	Table     string             `json:"table"`
	Pending   uint64             `json:"pending_generations"` // what counts now
	Bytes     int64              `json:"pending_bytes"`
	WaitMS    int64              `json:"wait_ms"` // at least
	Score     float64            `json:"score"`
	Class     string             `json:"class,omitempty"` // empty for a tail
	Groups    []GroupExplanation `json:"groups"`
	Log       GroupExplanation   `json:"log"`
	Shards    []ShardExplanation `json:"shards"`
	Request   *Request           `json:"request,omitempty"`
	NextMS    int64              `json:"next_ms,omitempty"` // when the verdict may change by itself
	ScanSoon  bool               `json:"scan_soon,omitempty"`
	Attention []string           `json:"attention,omitempty"` // failures that waiting will not cure
}

// GroupExplanation is the verdict on one group or the log. Groups in which nothing is pending and nothing runs are left
// out of an Explanation.
type GroupExplanation struct {
	Groups  Groups `json:"groups"`
	Code    Code   `json:"code"`
	Reason  string `json:"reason"`
	UntilMS int64  `json:"until_ms,omitempty"`
	// Failure is of all that the verdict is about; what single shards failed with is theirs.
	Failure *Failure `json:"failure,omitempty"`
}

// ShardExplanation is the verdict on one shard.
type ShardExplanation struct {
	Shard    string   `json:"shard"`
	Group    int      `json:"group"`
	Known    bool     `json:"known"`
	Pending  uint64   `json:"pending_generations"`
	Bytes    int64    `json:"pending_bytes"`
	AgeMS    int64    `json:"age_ms"`
	AgeExact bool     `json:"age_exact"` // otherwise it has waited at least AgeMS
	Score    float64  `json:"score"`     // of this shard alone
	Code     Code     `json:"code"`
	Reason   string   `json:"reason"`
	UntilMS  int64    `json:"until_ms,omitempty"`
	Failure  *Failure `json:"failure,omitempty"`
}

// Explain says for each shard why it is or is not being merged now. It decides with the functions of Decide, so the two
// cannot disagree, and changes nothing.
func Explain(in Input) Explanation {
	p, a := Decide(in), assess(&in)
	e := Explanation{
		Table: in.Table, Pending: p.Backlog.Gens, Bytes: p.Backlog.Bytes, WaitMS: p.Backlog.Wait(in.NowMS).Milliseconds(),
		Score: rounded(p.Score), Request: in.Request, NextMS: p.NextMS, ScanSoon: p.ScanSoon,
	}
	if p.Due {
		e.Class = p.Class.String()
	}
	for g := range in.Groups {
		d := p.Decisions[g]
		if d.Code != CodeCaughtUp {
			e.Groups = append(e.Groups, in.explainGroup(&p, d, &in.Groups[g]))
		}
		if last := in.Groups[g].Last; last != nil && last.Failure != nil && last.Failure.NeedsAttention() {
			e.Attention = append(e.Attention, fmt.Sprintf("group %d: %s: %s", g, last.Failure.Code, last.Failure.Message))
		}
	}
	e.Log = in.explainGroup(&p, p.Decisions[GroupCount], &in.Log)
	for i := range in.Shards {
		s := in.explainShard(&p, a, &in.Shards[i])
		if s.Failure != nil && s.Failure.NeedsAttention() {
			e.Attention = append(e.Attention, fmt.Sprintf("shard %s: %s: %s", s.Shard, s.Failure.Code, s.Failure.Message))
		}
		e.Shards = append(e.Shards, s)
	}
	return e
}

func (in *Input) explainGroup(p *Plan, d Decision, t *Turn) GroupExplanation {
	var f *Failure
	if t.Last != nil {
		f = t.Last.Failure
	}
	return GroupExplanation{Groups: d.Groups, Code: d.Code, UntilMS: d.UntilMS, Reason: in.sentence(p, d, t, f), Failure: f}
}

func (in *Input) explainShard(p *Plan, a *assessment, s *Shard) ShardExplanation {
	b := s.backlog(in.NowMS)
	t := &in.Groups[s.Group]
	x := ShardExplanation{
		Shard: s.Name, Group: s.Group, Known: s.Known, Pending: s.Gens, Bytes: max(s.Bytes, 0),
		AgeMS: b.Wait(in.NowMS).Milliseconds(), AgeExact: s.Exact && s.OldestMS > 0,
	}
	if s.Known && s.Gens > 0 {
		x.Score = rounded(in.Policy.Score(b, in.NowMS))
	}
	d := Decision{Groups: turnset.Of(s.Group), Unit: -1}
	d.Code, d.UntilMS = a.judge(in, s)
	var f *Failure
	if t.Last != nil {
		if sf, _, _ := t.Last.shardBlock(s.Name, s.Merged, t.SeenMS, in.NowMS); sf.Code != "" {
			f, x.Failure = &sf, &sf
		} else if d.Code == CodeGroupWait {
			f = t.Last.Failure
		}
	}
	switch {
	case in.Paused:
		d.Code, d.UntilMS = CodePaused, 0
	case d.Code == "":
		d = p.Decisions[s.Group]
	}
	x.Code, x.UntilMS, x.Reason = d.Code, d.UntilMS, in.sentence(p, d, t, f)
	return x
}

// sentence is the reason in words.
func (in *Input) sentence(p *Plan, d Decision, t *Turn, f *Failure) string {
	wait := func() string {
		return (time.Duration(max(d.UntilMS-in.NowMS, 0)) * time.Millisecond).Round(time.Second).String()
	}
	switch d.Code {
	case CodePaused:
		return "The table is paused; nothing new is queued until it is resumed."
	case CodeUnknown:
		return "Nobody has reported how far this shard is sealed or merged since etcd was filled; a scan of the table settles it."
	case CodeRegressed:
		return "The merged mark in the table went back; somebody expired transactions or replaced the log. It is not merged until a person has looked."
	case CodeCaughtUp:
		return "Nothing is pending."
	case CodeRunning:
		return fmt.Sprintf("Execution %s on executor %s is at it now.", t.Execution, t.Executor)
	case CodeBackoff, CodeGroupWait:
		if f == nil {
			return fmt.Sprintf("All that is pending here is of shards that failed; the next attempt is in %s.", wait())
		}
		return fmt.Sprintf("It failed %d times in a row, the last time with %s; the next attempt is in %s.", f.Count, f.Code, wait())
	case CodeReleased:
		if d.Groups == Log {
			return fmt.Sprintf("Maintenance was just done; storage is looked at again in %s at the latest.", wait())
		}
		return fmt.Sprintf("It was just released and its demand has not changed since; looked at again in %s at the latest.", wait())
	case CodeTail:
		if d.UntilMS == 0 {
			return fmt.Sprintf("Too little is pending: the table's score is %.2f and 1 is due.", rounded(p.Score))
		}
		return fmt.Sprintf("Too little is pending and it is young: the table's score is %.2f and 1 is due; age changes that in %s.", rounded(p.Score), wait())
	case CodeYields:
		return fmt.Sprintf("The table was merged %d times in a row and its maintenance is due; that goes first.", in.MergesInRow)
	case CodeParallel:
		return fmt.Sprintf("As many executions as the policy allows (max_parallelism %d) are merging this table.", in.Policy.MaxParallelism)
	}
	return in.dueSentence(p, d)
}

// dueSentence is the reason of what is queued, or will be with the next transaction.
func (in *Input) dueSentence(p *Plan, d Decision) string {
	state := "It will be queued"
	if d.Unit >= 0 {
		for _, u := range in.Ready {
			if same(u, p.Units[d.Unit]) && u.Groups == p.Units[d.Unit].Groups {
				state = "It is in the ready queue and waits for an executor"
			}
		}
	}
	class := p.Class
	if d.Unit >= 0 {
		class = p.Units[d.Unit].Class
	}
	switch d.Code {
	case CodeGens:
		return fmt.Sprintf("%s (%s): %d generations are pending and %d are critical.", state, class, p.Backlog.Gens, in.Policy.CriticalGenerations)
	case CodeWaited:
		return fmt.Sprintf("%s (%s): the oldest has waited longer than max_wait %s.", state, class, in.Policy.MaxWait)
	case CodeRequested:
		return fmt.Sprintf("%s (%s): somebody asked for it.", state, class)
	case CodeUpkeep:
		return fmt.Sprintf("%s (%s): %s is due; %s.", state, class, p.Units[d.Unit].Kind, p.Units[d.Unit].Note)
	}
	return fmt.Sprintf("%s (%s): the table's score is %.2f.", state, class, rounded(p.Score))
}

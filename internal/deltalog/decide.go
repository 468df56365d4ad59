package deltalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MarkChange is what a commit does to the merged mark of a shard: From is the mark that the plan saw (0 for none).
type MarkChange struct{ From, To int64 }

// Intent is a commit that somebody wants to make: what it was planned from and what it changes.
type Intent struct {
	TableID  string                // the table's life that the plan was made for
	Read     *Snapshot             // what the plan was made from
	Marks    map[string]MarkChange // merged marks, by appId; none for maintenance
	Adds     []Add                 // under fresh names
	Removes  []Remove              // of files in Read; size, statistics and tags are filled in
	Buckets  []string              // of an upsert table: the buckets that are touched, as in TagBucket
	Metadata *Metadata             // nil unless changed
	Protocol *Protocol             // nil unless changed
	Info     CommitInfo            // Operation, ExecutionID, Parameters and Metrics
	Upsert   bool
	// Whole says that the commit is about everything in the table, as dropping it is: any change of data plans it again.
	Whole bool
}

// VerdictKind is what becomes of an intent.
type VerdictKind int

const (
	// Rebase: nothing that happened since the plan concerns it; commit it as the next version.
	Rebase VerdictKind = iota + 1
	// Committed: it has been committed already, by an earlier put whose answer was lost.
	Committed
	// AlreadyMerged: everything it would merge is merged. Stop, and delete our own files.
	AlreadyMerged
	// PlanAgain: start over from a fresh snapshot.
	PlanAgain
)

func (k VerdictKind) String() string {
	switch k {
	case Rebase:
		return "rebase"
	case Committed:
		return "committed"
	case AlreadyMerged:
		return "already merged"
	case PlanAgain:
		return "plan again"
	}
	return fmt.Sprintf("verdict(%d)", int(k))
}

// Verdict is the decision about an intent, with the reason for people.
type Verdict struct {
	Kind    VerdictKind
	Reason  string
	Version int64 // of the commit, when Committed
}

// Decide says what becomes of an intent, given every commit since the version it was planned from. It is a pure function:
//
//  1. One of the commits is this very intent: it is committed.
//  2. The table has another id, or was dropped: plan again (and find that out).
//  3. It merges something, and every shard's mark is at or past ours: already merged.
//  4. Any mark is not the plan's: plan again.
//  5. Schema, protocol or settings changed: plan again. Policies and the table's state may change under a merge.
//  6. A file that we remove is gone, or was written anew: plan again.
//  7. On an upsert table, a file of a bucket that we touch came or went: plan again. A file without a bucket, which
//     only another engine can have written, touches all of them.
//  8. Else rebase.
func Decide(in Intent, since []Commit) Verdict {
	for i := range since {
		if in.isCommit(&since[i]) {
			return Verdict{Kind: Committed, Version: since[i].Version, Reason: fmt.Sprintf("version %d is this commit", since[i].Version)}
		}
	}
	if v, stop := decideLife(in, since); stop {
		return v
	}
	if v, stop := decideMarks(in, since); stop {
		return v
	}
	removes := make(map[string]bool, len(in.Removes))
	for _, r := range in.Removes {
		removes[r.Path] = true
	}
	for i := range since {
		if reason := in.conflict(&since[i], removes); reason != "" {
			return Verdict{Kind: PlanAgain, Reason: fmt.Sprintf("version %d %s", since[i].Version, reason)}
		}
	}
	return Verdict{Kind: Rebase, Reason: fmt.Sprintf("nothing in %d newer versions concerns it", len(since))}
}

// isCommit recognises the intent's own commit: the same execution, and the same content. One execution may make several
// commits; file names are never used twice, and marks only rise.
func (in *Intent) isCommit(c *Commit) bool {
	if in.Info.ExecutionID == "" || c.Info.ExecutionID != in.Info.ExecutionID || !c.Info.Own() {
		return false
	}
	if len(in.Adds) > 0 {
		return slices.ContainsFunc(c.Adds, func(a Add) bool { return a.Path == in.Adds[0].Path })
	}
	if len(in.Removes) > 0 {
		return slices.ContainsFunc(c.Removes, func(r Remove) bool { return r.Path == in.Removes[0].Path })
	}
	if len(in.Marks) == 0 {
		return c.Metadata != nil && in.Metadata != nil && c.Metadata.Equal(in.Metadata.normal())
	}
	for id, m := range in.Marks {
		if !slices.ContainsFunc(c.Txns, func(t Txn) bool { return t.AppID == id && t.Version == m.To }) {
			return false
		}
	}
	return true
}

func decideLife(in Intent, since []Commit) (Verdict, bool) {
	if in.Read.Metadata.ID != in.TableID {
		return Verdict{Kind: PlanAgain, Reason: fmt.Sprintf("the table's id is %s, not %s", in.Read.Metadata.ID, in.TableID)}, true
	}
	for i := range since {
		switch m := since[i].Metadata; {
		case m == nil:
		case m.ID != in.TableID:
			return Verdict{Kind: PlanAgain, Reason: fmt.Sprintf("version %d begins another life of the table, with the id %s", since[i].Version, m.ID)}, true
		case m.Configuration[PropertyDropped] != "" && in.Read.Metadata.Configuration[PropertyDropped] == "":
			return Verdict{Kind: PlanAgain, Reason: fmt.Sprintf("version %d dropped the table", since[i].Version)}, true
		}
	}
	return Verdict{}, false
}

func decideMarks(in Intent, since []Commit) (Verdict, bool) {
	if len(in.Marks) == 0 {
		return Verdict{}, false
	}
	current := make(map[string]int64, len(in.Marks))
	for id := range in.Marks {
		current[id], _ = in.Read.Txn(id)
	}
	for i := range since {
		for _, t := range since[i].Txns {
			if _, ok := current[t.AppID]; ok {
				current[t.AppID] = t.Version
			}
		}
	}
	merged := true
	var moved string // the first shard, by name, whose mark is not the plan's
	for _, id := range slices.Sorted(maps.Keys(in.Marks)) {
		m := in.Marks[id]
		merged = merged && current[id] >= m.To
		if moved == "" && current[id] != m.From {
			moved = fmt.Sprintf("the mark of %s is %d, and the plan began at %d", shardOf(id), current[id], m.From)
		}
	}
	switch {
	case merged:
		return Verdict{Kind: AlreadyMerged, Reason: "every mark is at or past what this commit would set"}, true
	case moved != "":
		return Verdict{Kind: PlanAgain, Reason: moved}, true
	}
	return Verdict{}, false
}

func shardOf(appID string) string {
	if parts := strings.SplitN(appID, "/", 3); len(parts) == 3 && parts[0] == "tidemark" {
		return "shard " + parts[2]
	}
	return "transaction " + appID
}

// conflict says what a commit did that the intent, which removes certain paths, cannot live with, or "".
func (in *Intent) conflict(c *Commit, removes map[string]bool) string {
	if c.Protocol != nil && !c.Protocol.Equal(in.Read.Protocol) {
		return "changed the protocol"
	}
	if c.Metadata != nil {
		if what := in.metadataConflict(*c.Metadata); what != "" {
			return what
		}
	}
	if in.Whole && len(c.Adds)+len(c.Removes) > 0 {
		return "changed the files of the table"
	}
	for _, r := range c.Removes {
		if removes[r.Path] {
			return "removed " + r.Path + ", which this commit removes"
		}
	}
	for _, a := range c.Adds {
		if removes[a.Path] {
			return "added " + a.Path + " anew, which this commit removes"
		}
	}
	if !in.Upsert {
		return ""
	}
	for _, a := range c.Adds {
		if in.touches(a.Tags[TagBucket]) {
			return "added " + a.Path + bucketText(a.Tags[TagBucket])
		}
	}
	for _, r := range c.Removes {
		bucket := r.Tags[TagBucket]
		if f, ok := in.Read.File(r.Path); ok && bucket == "" {
			bucket = f.Tags[TagBucket]
		}
		if in.touches(bucket) {
			return "removed " + r.Path + bucketText(bucket)
		}
	}
	return ""
}

func (in *Intent) touches(bucket string) bool {
	return bucket == "" || slices.Contains(in.Buckets, bucket)
}

func bucketText(bucket string) string {
	if bucket == "" {
		return ", which names no bucket"
	}
	return " in " + bucket + ", which this commit touches"
}

// metadataConflict compares a new description of the table with the plan's. Policies and state are for schedulers and
// may change under a merge, unless the commit itself would write the old ones back.
func (in *Intent) metadataConflict(m Metadata) string {
	old := in.Read.Metadata
	switch {
	case m.SchemaString != old.SchemaString:
		return "changed the schema"
	case in.Metadata != nil && !m.Equal(old):
		return "changed the table's metadata, which this commit changes too"
	}
	changed := ""
	for name := range keysOfBoth(m.Configuration, old.Configuration) {
		a, inA := m.Configuration[name]
		b, inB := old.Configuration[name]
		if (a != b || inA != inB) && !freeProperty(name) && (changed == "" || name < changed) {
			changed = name
		}
	}
	if changed != "" {
		return "changed the property " + changed
	}
	if !slices.Equal(m.PartitionColumns, old.PartitionColumns) || m.Format.Provider != old.Format.Provider {
		return "changed the table's layout"
	}
	return ""
}

func freeProperty(name string) bool {
	return name == PropertyState || strings.HasPrefix(name, PropertyPolicy)
}

func keysOfBoth(a, b map[string]string) map[string]string {
	both := maps.Clone(a)
	if both == nil {
		both = map[string]string{}
	}
	maps.Copy(both, b)
	return both
}

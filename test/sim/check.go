package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/test/sim/simetcd"
)

// wipeNoticed is how long executors may take to notice that etcd was replaced: until their next renewal, and it may hang.
const wipeNoticed = 60 * time.Second

// checker knows what must hold, from storage and etcd alone. All its methods are called by the world's goroutine.
type checker struct {
	world   *world
	files   map[string][]byte // everything in the store
	tables  map[string]*tableState
	books   *books
	marks   map[string]seenDemand // by key in etcd
	decoded decoded
	// failures is what etcd says that shards fail with, by table and shard; failing the shards of each record of it.
	failures map[string]map[string]failureFile
	failing  map[string]map[string][]string
	skips    map[string]bool // "<table id>/<shard>/<generation>" that a person gives up

	mu    sync.Mutex // guards the following
	wiped time.Duration
}

// tableState is a table as its log says.
type tableState struct {
	name    string
	version int64
	id      string
	life    int64
	upsert  bool
	seq     string
	dropped bool
	live    map[string]bool
	marks   map[string]uint64 // by shard, of this life
	shards  map[string]*shardState
	rows    map[string]row // of an upsert table, by key, as the marks say
	base    map[string]int // of an append table: rows by text, as the marks say
	commits map[int64][]byte
}

// shardState is a shard's manifests, of one life of the table: key is "<table id>/<shard>".
type shardState struct {
	trims             []trim
	version, boundary uint64
	sealed, trimmed   uint64
	generations       map[uint64]generation
	epoch             uint64
	state             string
}

// trim is when generations up to one were trimmed.
type trim struct {
	through uint64
	at      time.Duration
}

type generation struct {
	path string
	rows []row
}

func newChecker(w *world) *checker {
	return &checker{
		world: w, files: map[string][]byte{}, tables: map[string]*tableState{}, marks: map[string]seenDemand{}, books: newBooks(), decoded: decoded{},
		failures: map[string]map[string]failureFile{}, failing: map[string]map[string][]string{}, skips: map[string]bool{},
	}
}

func (c *checker) table(name string) *tableState {
	t := c.tables[name]
	if t == nil {
		t = &tableState{name: name, version: -1, live: map[string]bool{}, marks: map[string]uint64{}, shards: map[string]*shardState{},
			rows: map[string]row{}, base: map[string]int{}, commits: map[int64][]byte{}}
		c.tables[name] = t
	}
	return t
}

// landed is told of every change of the store.
func (c *checker) landed(p *process, op, key string, body []byte) {
	if op == "delete" {
		c.deleted(p, key)
		delete(c.files, key)
		return
	}
	c.files[key] = body
	parts := strings.Split(key, "/")
	switch {
	case len(parts) == 3 && parts[1] == "_delta_log" && strings.HasSuffix(key, ".json") && len(parts[2]) == 25:
		version, err := strconv.ParseInt(strings.TrimSuffix(parts[2], ".json"), 10, 64)
		if err == nil {
			c.committed(p, c.table(parts[0]), version, body)
		}
	case len(parts) == 6 && parts[1] == "_shards" && parts[4] == "manifest":
		c.manifest(p, c.table(parts[0]), parts[2], parts[3], body)
	}
}

// deleted checks that nothing readable was deleted.
func (c *checker) deleted(p *process, key string) {
	parts := strings.Split(key, "/")
	t := c.tables[parts[0]]
	if t == nil || len(parts) < 2 {
		return
	}
	switch {
	case len(parts) == 2 && t.live[parts[1]]:
		c.world.fail("table %s: %s deleted the live file %s", t.name, p.name, parts[1])
	case len(parts) == 6 && parts[4] == "gen":
		s := t.shards[parts[2]+"/"+parts[3]]
		if s == nil || parts[2] != t.id || t.dropped {
			return
		}
		c.generationDeleted(p, t, s, parts[3], "_shards/"+strings.Join(parts[2:], "/"))
	}
}

// generationDeleted checks the deletion of a generation's file: what was named may go an hour after it was trimmed, what
// was not may once it can never be named.
func (c *checker) generationDeleted(p *process, t *tableState, s *shardState, shard, path string) {
	for n, g := range s.generations {
		if g.path != path {
			continue
		}
		if n > t.marks[shard] {
			c.world.fail("table %s shard %s: %s deleted generation %d, which is not merged (mark %d)", t.name, shard, p.name, n, t.marks[shard])
		}
		for _, trimmed := range s.trims {
			if n <= trimmed.through {
				if age := c.world.now() - trimmed.at; age < time.Hour {
					c.world.fail("table %s shard %s: %s deleted generation %d, trimmed %s ago", t.name, shard, p.name, n, age)
				}
				return
			}
		}
		c.world.fail("table %s shard %s: %s deleted generation %d, which is not trimmed", t.name, shard, p.name, n)
		return
	}
	name := path[strings.LastIndexByte(path, '/')+1:]
	number, _, _ := strings.Cut(name, "-")
	if n, err := strconv.ParseUint(number, 10, 64); err != nil || n > s.sealed {
		c.world.fail("table %s shard %s: %s deleted %s, which may yet become a generation: %d are sealed", t.name, shard, p.name, path, s.sealed)
	}
}

// sent checks what an executor sends: its session stands, or it would have fenced itself; and while its session stands, a
// commit is of an execution that has turns.
func (c *checker) sent(p *process, server *simetcd.Server, op, key string, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wiped != 0 && c.world.now()-c.wiped < wipeNoticed {
		return
	}
	session, _ := server.Standing(prefix + "/executors/" + p.name)
	if len(session) == 0 {
		c.world.fail("%s sends %s %s without a session", p.name, op, key)
		return
	}
	if op != "put-if-absent" || !strings.Contains(key, "/_delta_log/") {
		return
	}
	var execution string
	for line := range bytes.Lines(body) {
		var a action
		if json.Unmarshal(line, &a) == nil && a.CommitInfo != nil {
			execution = a.CommitInfo.Execution
		}
	}
	p.mu.Lock()
	p.executions[execution] = true
	p.mu.Unlock()
	name, _, _ := strings.Cut(key, "/")
	turns, _ := server.Standing(prefix + "/turns/" + name + "/")
	for _, kv := range turns {
		if bytes.Contains(kv.Value, []byte(execution)) {
			return
		}
	}
	c.world.fail("%s commits to %s by execution %s, which has no turn", p.name, key, execution)
}

type manifestFile struct {
	Version       uint64 `json:"version"`
	Boundary      uint64 `json:"boundary"`
	State         string `json:"state"`
	Epoch         uint64 `json:"epoch"`
	SealedThrough uint64 `json:"sealed_through"`
	Trimmed       uint64 `json:"trimmed_through"`
	Generations   []struct {
		N    uint64 `json:"n"`
		Path string `json:"path"`
		Rows int64  `json:"rows"`
	} `json:"generations"`
}

func (c *checker) manifest(p *process, t *tableState, id, shard string, body []byte) {
	var m manifestFile
	if err := json.Unmarshal(body, &m); err != nil {
		c.world.fail("table %s shard %s: %s wrote a manifest that is not JSON: %v", t.name, shard, p.name, err)
		return
	}
	s := t.shards[id+"/"+shard]
	if s == nil {
		s = &shardState{generations: map[uint64]generation{}}
		t.shards[id+"/"+shard] = s
	}
	if m.Version <= s.boundary {
		c.world.trace.say(p.name, "manifest %s %s version %d landed below the boundary: void", t.name, shard, m.Version)
		return
	}
	if m.Version != s.version+1 {
		c.world.fail("table %s shard %s: %s wrote manifest version %d after version %d", t.name, shard, p.name, m.Version, s.version)
	}
	if m.SealedThrough < s.sealed || m.Trimmed < s.trimmed || m.Boundary < s.boundary || m.Epoch < s.epoch {
		c.world.fail("table %s shard %s: %s wrote manifest %d, which lowers sealed %d→%d, trimmed %d→%d, boundary %d→%d or epoch %d→%d", t.name, shard,
			p.name, m.Version, s.sealed, m.SealedThrough, s.trimmed, m.Trimmed, s.boundary, m.Boundary, s.epoch, m.Epoch)
	}
	if s.state == "retired" && m.State != "retired" {
		c.world.fail("table %s shard %s: %s opened a retired shard", t.name, shard, p.name)
	}
	if id == t.id && m.Trimmed > t.marks[shard] {
		c.world.fail("table %s shard %s: %s trimmed through generation %d, and only %d are merged", t.name, shard, p.name, m.Trimmed, t.marks[shard])
	}
	for _, g := range m.Generations {
		known, ok := s.generations[g.N]
		if ok && known.path != g.Path {
			c.world.fail("table %s shard %s: %s made generation %d another file", t.name, shard, p.name, g.N)
		}
		if ok {
			continue
		}
		s.generations[g.N] = c.sealed(p, t, shard, g.N, g.Path, g.Rows)
	}
	for n := m.Trimmed + 1; n <= m.SealedThrough; n++ {
		if _, ok := s.generations[n]; !ok {
			c.world.fail("table %s shard %s: manifest %d does not list generation %d", t.name, shard, m.Version, n)
		}
	}
	if m.SealedThrough > s.sealed {
		c.world.trace.say(p.name, "sealed %s %s generation %d (%d rows)", t.name, shard, m.SealedThrough, len(s.generations[m.SealedThrough].rows))
	} else if m.Trimmed > s.trimmed {
		c.world.trace.say(p.name, "trimmed %s %s through %d", t.name, shard, m.Trimmed)
	} else if m.Epoch > s.epoch {
		c.world.trace.say(p.name, "claimed %s %s with epoch %d", t.name, shard, m.Epoch)
	}
	if m.Trimmed > s.trimmed {
		s.trims = append(s.trims, trim{m.Trimmed, c.world.now()})
	}
	s.version, s.boundary, s.sealed, s.trimmed, s.epoch, s.state = m.Version, m.Boundary, m.SealedThrough, m.Trimmed, m.Epoch, m.State
}

// sealed reads a new generation.
func (c *checker) sealed(p *process, t *tableState, shard string, n uint64, path string, rows int64) generation {
	g := generation{path: path}
	if path == "" {
		if rows != 0 {
			c.world.fail("table %s shard %s: generation %d has %d rows and no file", t.name, shard, n, rows)
		}
		return g
	}
	body, ok := c.files[t.name+"/"+path]
	if !ok {
		c.world.fail("table %s shard %s: %s sealed generation %d, whose file %s does not exist", t.name, shard, p.name, n, path)
		return g
	}
	var err error
	if g.rows, err = c.decoded.read(body); err != nil || int64(len(g.rows)) != rows {
		c.world.fail("table %s shard %s: generation %d has %d rows, its manifest says %d: %v", t.name, shard, n, len(g.rows), rows, err)
	}
	for _, r := range g.rows {
		c.books.sealed(c.world, t.name, shard, n, r)
	}
	return g
}

type action struct {
	Add *struct {
		Path       string `json:"path"`
		DataChange bool   `json:"dataChange"`
	} `json:"add"`
	Remove *struct {
		Path       string `json:"path"`
		DataChange bool   `json:"dataChange"`
	} `json:"remove"`
	Txn *struct {
		AppID   string `json:"appId"`
		Version int64  `json:"version"`
	} `json:"txn"`
	MetaData *struct {
		ID            string            `json:"id"`
		Configuration map[string]string `json:"configuration"`
	} `json:"metaData"`
	CommitInfo *struct {
		Operation string `json:"operation"`
		Execution string `json:"tidemarkExecution"`
	} `json:"commitInfo"`
}

// committed replays one version of a table's log.
func (c *checker) committed(p *process, t *tableState, version int64, body []byte) {
	if version != t.version+1 {
		if old, ok := t.commits[version]; ok && !bytes.Equal(old, body) {
			c.world.trace.say(p.name, "commit %s v%d landed in a gap of the cleaned log: void", t.name, version)
			return
		}
		c.world.fail("table %s: %s committed version %d after version %d", t.name, p.name, version, t.version)
		return
	}
	t.version = version
	t.commits[version] = body
	var actions []action
	for line := range bytes.Lines(body) {
		var a action
		if err := json.Unmarshal(line, &a); err != nil {
			c.world.fail("table %s: version %d is not JSON: %v", t.name, version, err)
			return
		}
		actions = append(actions, a)
	}
	operation := ""
	var added, removed, merged []row
	changes := false
	from := maps.Clone(t.marks)
	for _, a := range actions {
		switch {
		case a.CommitInfo != nil:
			operation = a.CommitInfo.Operation
		case a.MetaData != nil:
			c.described(t, version, a.MetaData.ID, a.MetaData.Configuration)
			if len(t.marks) == 0 {
				from = map[string]uint64{}
			}
		}
	}
	for _, a := range actions {
		switch {
		case a.Add != nil:
			body, ok := c.files[t.name+"/"+a.Add.Path]
			if !ok {
				c.world.fail("table %s: version %d by %s adds %s, which does not exist", t.name, version, p.name, a.Add.Path)
			}
			if t.live[a.Add.Path] {
				c.world.fail("table %s: version %d by %s adds %s again", t.name, version, p.name, a.Add.Path)
			}
			t.live[a.Add.Path] = true
			rows, err := c.decoded.read(body)
			if err != nil {
				c.world.fail("table %s: %s cannot be read: %v", t.name, a.Add.Path, err)
			}
			added = append(added, rows...)
			changes = changes || a.Add.DataChange
		case a.Remove != nil:
			if !t.live[a.Remove.Path] {
				c.world.fail("table %s: version %d by %s removes %s, which is not there", t.name, version, p.name, a.Remove.Path)
			}
			delete(t.live, a.Remove.Path)
			rows, _ := c.decoded.read(c.files[t.name+"/"+a.Remove.Path])
			removed = append(removed, rows...)
			changes = changes || a.Remove.DataChange
		case a.Txn != nil:
			merged = append(merged, c.mark(p, t, version, operation, a.Txn.AppID, a.Txn.Version)...)
		}
	}
	var marks []string
	for _, shard := range slices.Sorted(maps.Keys(t.marks)) {
		if t.marks[shard] != from[shard] {
			marks = append(marks, fmt.Sprintf("%s %d→%d", shard, from[shard], t.marks[shard]))
		}
	}
	c.world.trace.say(p.name, "commit %s v%d %s %s", t.name, version, operation, strings.Join(marks, ", "))
	if t.dropped || operation == "CREATE TABLE" {
		return
	}
	if t.upsert {
		c.checkUpsert(p, t, version)
		return
	}
	if p.name == foreignName && changes {
		c.foreign(t, added, removed)
		return
	}
	c.checkAppend(p, t, version, added, removed, merged)
}

// foreign takes over what an engine of another make has done to an append table's rows.
func (c *checker) foreign(t *tableState, added, removed []row) {
	for _, r := range added {
		t.base[r.text]++
	}
	for _, r := range removed {
		if t.base[r.text]--; t.base[r.text] == 0 {
			delete(t.base, r.text)
		}
	}
}

// described takes over a table's description; a new id is a new life.
func (c *checker) described(t *tableState, version int64, id string, config map[string]string) {
	dropped := config["tidemark.dropped"] != ""
	life, _ := strconv.ParseInt(config["tidemark.incarnation"], 10, 64)
	if id != t.id {
		if len(t.live) > 0 {
			c.world.fail("table %s: version %d begins a new life over %d files of the last", t.name, version, len(t.live))
		}
		if life != t.life+1 {
			c.world.fail("table %s: life %d follows life %d", t.name, life, t.life)
		}
		t.marks, t.rows, t.base = map[string]uint64{}, map[string]row{}, map[string]int{}
	}
	t.id, t.life, t.dropped = id, life, dropped
	t.upsert, t.seq = config["tidemark.mode"] == "upsert", config["tidemark.sequence"]
	if dropped {
		t.rows, t.base = map[string]row{}, map[string]int{}
	}
}

// mark raises a merged mark and returns the rows of the generations passed, which are applied to what must be there.
func (c *checker) mark(p *process, t *tableState, version int64, operation, app string, to int64) (rows []row) {
	shard, ok := strings.CutPrefix(app, "tidemark/"+t.id+"/")
	if !ok {
		c.world.fail("table %s: version %d by %s has a mark of another table: %s", t.name, version, p.name, app)
		return nil
	}
	s := t.shards[t.id+"/"+shard]
	from := t.marks[shard]
	if s == nil || uint64(to) <= from || uint64(to) > s.sealed {
		c.world.fail("table %s shard %s: version %d by %s moves the mark %d→%d", t.name, shard, version, p.name, from, to)
		return nil
	}
	t.marks[shard] = uint64(to)
	if operation == "SKIP GENERATION" {
		if uint64(to) != from+1 || !c.skips[fmt.Sprintf("%s/%s/%d", t.id, shard, to)] {
			c.world.fail("table %s shard %s: version %d by %s skips %d→%d, which nobody has asked for", t.name, shard, version, p.name, from, to)
		}
		return nil
	}
	for n := from + 1; n <= uint64(to); n++ {
		for _, r := range s.generations[n].rows {
			rows = append(rows, r)
			if t.upsert {
				t.apply(r)
			} else {
				t.base[r.text]++
			}
		}
	}
	return rows
}

// apply folds one version of a key into an upsert table.
func (t *tableState) apply(r row) {
	standing, ok := t.rows[r.key]
	if ok && t.seq != "" && r.seq < standing.seq {
		return
	}
	if r.deletes {
		delete(t.rows, r.key)
		return
	}
	t.rows[r.key] = r
}

// checkAppend compares what a commit adds with the generations that its marks pass.
func (c *checker) checkAppend(p *process, t *tableState, version int64, added, removed, merged []row) {
	want := counted(merged)
	for text, n := range counted(removed) {
		want[text] += n
	}
	if got := counted(added); !maps.Equal(got, want) {
		c.world.fail("table %s: version %d by %s adds other rows than its marks say: %s", t.name, version, p.name, difference(got, want))
	}
}

// checkUpsert compares the whole table with the fold of all merged generations.
func (c *checker) checkUpsert(p *process, t *tableState, version int64) {
	got := map[string]int{}
	for path := range t.live {
		rows, err := c.decoded.read(c.files[t.name+"/"+path])
		if err != nil {
			c.world.fail("table %s: %s cannot be read: %v", t.name, path, err)
		}
		for _, r := range rows {
			got[r.text]++
		}
	}
	want := map[string]int{}
	for _, r := range t.rows {
		want[r.text]++
	}
	if !maps.Equal(got, want) {
		c.world.fail("table %s: version %d by %s is not the fold of its generations: %s", t.name, version, p.name, difference(got, want))
	}
}

func counted(rows []row) map[string]int {
	n := map[string]int{}
	for _, r := range rows {
		n[r.text]++
	}
	return n
}

func difference(got, want map[string]int) string {
	var lines []string
	for text, n := range got {
		if d := n - want[text]; d > 0 {
			lines = append(lines, fmt.Sprintf("%d× too many %s", d, text))
		}
	}
	for text, n := range want {
		if d := n - got[text]; d > 0 {
			lines = append(lines, fmt.Sprintf("%d× missing %s", d, text))
		}
	}
	slices.Sort(lines)
	if len(lines) > 6 {
		lines = append(lines[:6], fmt.Sprintf("and %d more", len(lines)-6))
	}
	return strings.Join(lines, "; ")
}

// seenDemand is a demand record as it stood last.
type seenDemand struct {
	life           int64
	sealed, merged uint64
	sealedKnown    bool
	mergedKnown    bool
}

type demandFile struct {
	TableID     string `json:"table_id"`
	Incarnation int64  `json:"incarnation"`
	Source      string `json:"source"`
	Sealed      *struct {
		Gen uint64 `json:"gen"`
	} `json:"sealed"`
	Merged *struct {
		Gen uint64 `json:"gen"`
	} `json:"merged"`
}

// revision is told of every revision of etcd.
func (c *checker) revision(events []*mvccpb.Event) {
	for _, ev := range events {
		key := string(ev.Kv.Key)
		if of, ok := strings.CutPrefix(key, prefix+"/outcomes/"); ok {
			c.outcome(of, ev.Kv.Value)
		}
		rest, ok := strings.CutPrefix(key, prefix+"/demand/")
		if !ok {
			continue
		}
		parts := strings.Split(rest, "/")
		if ev.Type == mvccpb.Event_DELETE {
			delete(c.marks, key)
			continue
		}
		var d demandFile
		if err := json.Unmarshal(ev.Kv.Value, &d); err != nil || len(parts) != 3 {
			c.world.fail("etcd %s is not a demand record: %v", key, err)
			continue
		}
		c.demand(key, parts[1], parts[2], d)
	}
}

func (c *checker) demand(key, name, shard string, d demandFile) {
	now := seenDemand{life: d.Incarnation}
	if d.Sealed != nil {
		now.sealed, now.sealedKnown = d.Sealed.Gen, true
	}
	if d.Merged != nil {
		now.merged, now.mergedKnown = d.Merged.Gen, true
	}
	was := c.marks[key]
	c.marks[key] = now
	if now.life < was.life {
		c.world.fail("etcd %s goes back from life %d to %d", key, was.life, now.life)
	}
	if now.life == was.life && (now.sealed < was.sealed || now.merged < was.merged || was.mergedKnown && !now.mergedKnown || was.sealedKnown && !now.sealedKnown) {
		c.world.fail("etcd %s lowers a mark: sealed %d→%d, merged %d→%d", key, was.sealed, now.sealed, was.merged, now.merged)
	}
	if d.Source == "writer" && now.mergedKnown && (!was.mergedKnown || now.life != was.life) {
		c.world.fail("etcd %s: a writer says how much is merged, which it cannot know", key)
	}
	t := c.tables[name]
	if t == nil {
		c.world.fail("etcd %s is demand of a table that does not exist", key)
		return
	}
	s := t.shards[d.TableID+"/"+shard]
	if s == nil {
		c.world.fail("etcd %s is demand of a shard that does not exist", key)
		return
	}
	if now.sealed > s.sealed {
		c.world.fail("etcd %s says that generation %d is sealed, and storage ends at %d", key, now.sealed, s.sealed)
	}
	if d.TableID == t.id && now.merged > t.marks[shard] {
		c.world.fail("etcd %s says that generation %d is merged, and the log says %d", key, now.merged, t.marks[shard])
	}
}

// wipe forgets what a lost etcd said.
func (c *checker) wipe() {
	clear(c.marks)
	clear(c.failures)
	clear(c.failing)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wiped = c.world.now()
}

// pending says what is not quiet yet; "" if everything is that except does not leave out: it is asked for shards, and for
// tables with no shard.
func (c *checker) pending(except func(t *tableState, shard string) bool) string {
	for _, name := range slices.Sorted(maps.Keys(c.tables)) {
		t := c.tables[name]
		if except(t, "") {
			continue
		}
		want := map[string]seenDemand{}
		for key, s := range t.shards {
			id, shard, _ := strings.Cut(key, "/")
			if id != t.id || t.dropped || except(t, shard) {
				continue
			}
			if t.marks[shard] != s.sealed {
				return fmt.Sprintf("table %s shard %s: %d of %d generations are merged", name, shard, t.marks[shard], s.sealed)
			}
			want[shard] = seenDemand{life: t.life, sealed: s.sealed, merged: t.marks[shard], sealedKnown: true, mergedKnown: true}
		}
		have := map[string]seenDemand{}
		for key, d := range c.marks {
			parts := strings.Split(strings.TrimPrefix(key, prefix+"/demand/"), "/")
			if parts[1] == name && !except(t, parts[2]) {
				have[parts[2]] = d
			}
		}
		if !maps.Equal(want, have) {
			return fmt.Sprintf("table %s: demand is %v, and storage says %v", name, have, want)
		}
	}
	return ""
}

// final checks what must hold once everything is quiet.
func (c *checker) final() {
	for _, name := range slices.Sorted(maps.Keys(c.tables)) {
		t := c.tables[name]
		if t.dropped {
			continue
		}
		if t.upsert {
			c.checkUpsert(&process{name: "anybody"}, t, t.version)
		} else {
			got := map[string]int{}
			for path := range t.live {
				rows, err := c.decoded.read(c.files[name+"/"+path])
				if err != nil {
					c.world.fail("table %s: %s cannot be read: %v", name, path, err)
				}
				for _, r := range rows {
					got[r.text]++
				}
			}
			if !maps.Equal(got, t.base) {
				c.world.fail("table %s: at the end %s", name, difference(got, t.base))
			}
		}
	}
	c.books.final(c.world, c.tables)
}

// books are what the load knows: which rows were acknowledged.
type books struct {
	mu    sync.Mutex // guards the following
	acked map[int64]ack
	found map[int64]ack
}

// ack says where rows are; generation 0 is anywhere.
type ack struct {
	table, shard string
	generation   uint64
}

func newBooks() *books { return &books{acked: map[int64]ack{}, found: map[int64]ack{}} }

// acknowledge notes that a seal said that rows are in a generation.
func (b *books) acknowledge(a ack, rows []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range rows {
		b.acked[r] = a
	}
}

// sealed notes a row that a manifest names.
func (b *books) sealed(w *world, table, shard string, n uint64, r row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, twice := b.found[r.id]; twice {
		w.fail("table %s: row %d is in generation %d of shard %s and in generation %d of shard %s", table, r.id, at.generation, at.shard, n, shard)
	}
	b.found[r.id] = ack{table, shard, n}
}

// final compares acknowledgements with what is sealed.
func (b *books) final(w *world, tables map[string]*tableState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(b.acked)) {
		a := b.acked[id]
		f, ok := b.found[id]
		switch {
		case !ok:
			w.fail("table %s shard %s: row %d was acknowledged and is in no generation", a.table, a.shard, id)
		case a.generation != 0 && (f.shard != a.shard || f.generation != a.generation):
			w.fail("table %s: row %d was acknowledged in %v and is in %v", a.table, id, a, f)
		}
	}
}

package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/control"
	"tidemark/internal/objstore"
)

// What is broken for good until somebody repairs it: damaged files, and generations whose schema cannot become the
// table's. It is repaired only after everything else has healed and become quiet, so that a history shows first that
// nothing else stands still.

// repairEvery is how often the operator looks what there is to do.
const repairEvery = 5 * time.Second

// damage is one damaged file.
type damage struct {
	key, kind    string
	table, shard string // no shard: the table as a whole is concerned
	generation   uint64
	was          []byte
	skip         bool // the generation is given up instead of restored
}

// repairs are what the operator does.
type repairs struct {
	damages map[string]*damage // by key, until restored; only the world's goroutine

	mu    sync.Mutex // guards the following
	begun bool
	todo  []repair
}

// repair is one thing to do; generation 0 is a retry of everything that the table fails with.
type repair struct {
	table, shard string
	generation   uint64
}

// damage breaks a file of a table, if there is one of the kind.
func (s *sim) damage(i incident) {
	r := s.world.draw(i.id)
	names := slices.Sorted(maps.Keys(s.checker.tables))
	if len(names) == 0 {
		return
	}
	t := s.checker.tables[names[i.who%len(names)]]
	if t.id == "" || t.dropped {
		return
	}
	d := s.candidate(t, strings.TrimPrefix(i.kind, "damage "), r)
	if d == nil || s.repairs.damages[d.key] != nil {
		return
	}
	body, info, err := s.memory.Get(context.Background(), d.key)
	if err != nil || len(body) < 2 {
		return
	}
	d.was = body
	broken, how := slices.Clone(body), "is cut off"
	if d.kind == "generation" && r.IntN(2) == 0 {
		broken[r.IntN(len(broken))] ^= 1 << r.IntN(8) // its checksum is in the manifest
		how = "has a wrong bit"
	} else {
		// Nothing has a checksum but generations: what ends in the middle of a value or of a footer is seen all the same.
		for broken = broken[:1+r.IntN(len(broken)-1)]; len(broken) > 1 && strings.HasSuffix(strings.TrimSpace(string(broken)), "}"); {
			broken = broken[:len(broken)-1]
		}
		if strings.TrimSpace(string(broken)) == "" || strings.HasSuffix(string(broken), "\n") {
			broken = []byte("{")
		}
	}
	if s.memory.ReplaceIfMatch(context.Background(), d.key, broken, info.ETag).Outcome != objstore.Applied {
		return
	}
	d.skip = d.kind == "generation" && r.IntN(2) == 0
	s.repairs.damages[d.key] = d
	s.world.trace.say("damage", "%s %s", d.key, how)
}

// candidate finds a file of a kind.
func (s *sim) candidate(t *tableState, kind string, r *rand.Rand) *damage {
	d := &damage{kind: kind, table: t.name}
	pick := func(keys []string) bool {
		if len(keys) == 0 {
			return false
		}
		slices.Sort(keys)
		d.key = keys[r.IntN(len(keys))]
		return true
	}
	under := func(prefix, suffix string) (keys []string) {
		for key := range s.checker.files {
			if strings.HasPrefix(key, prefix) && strings.HasSuffix(key, suffix) {
				keys = append(keys, key)
			}
		}
		return keys
	}
	switch kind {
	case "generation":
		var keys []string
		of := map[string]damage{}
		for id, shard := range t.shards {
			name, ours := strings.CutPrefix(id, t.id+"/")
			for n, g := range shard.generations {
				if key := t.name + "/" + g.path; ours && g.path != "" && n > t.marks[name] {
					keys = append(keys, key)
					of[key] = damage{shard: name, generation: n}
				}
			}
		}
		if !pick(keys) {
			return nil
		}
		d.shard, d.generation = of[d.key].shard, of[d.key].generation
	case "manifest":
		if !pick(under(t.name+"/_shards/"+t.id+"/", ".json")) {
			return nil
		}
		d.shard = strings.Split(d.key, "/")[3]
	case "base":
		var keys []string
		for path := range t.live {
			keys = append(keys, t.name+"/"+path)
		}
		if !pick(keys) {
			return nil
		}
	case "log":
		keys := append(under(t.name+"/_delta_log/", ".checkpoint.parquet"), under(t.name+"/_delta_log/", "_last_checkpoint")...)
		newest := fmt.Sprintf("%s/_delta_log/%020d.json", t.name, t.version)
		if !pick(append(keys, newest)) {
			return nil
		}
	}
	return d
}

// concerned says whether something of a shard is damaged, or refused for good, so that it may stand still.
func (s *sim) concerned(t *tableState, shard string) bool {
	if s.stuck(t, shard) {
		return true
	}
	for _, d := range s.repairs.damages {
		if d.table == t.name && (d.shard == "" || d.shard == shard) {
			return true
		}
	}
	return false
}

// stuck says whether a shard fails at its next generation because of a schema that cannot be the table's.
func (s *sim) stuck(t *tableState, shard string) bool {
	f, ok := s.checker.failures[t.name][shard]
	if !ok || !s.world.plan.clashes || f.Code != "schema_clash" || f.Generation != t.marks[shard]+1 {
		return false
	}
	state := t.shards[t.id+"/"+shard]
	return state != nil && hasColumn(s.checker.files[t.name+"/"+state.generations[f.Generation].path], "x")
}

// unnoticed names a damaged generation that is next in its shard and that no record in etcd says so of; "" if none is.
func (s *sim) unnoticed() string {
	for _, key := range slices.Sorted(maps.Keys(s.repairs.damages)) {
		d := s.repairs.damages[key]
		t := s.checker.tables[d.table]
		if d.kind != "generation" || t.dropped || t.marks[d.shard]+1 != d.generation || !strings.Contains(key, t.id) {
			continue
		}
		if s.stuck(t, d.shard) {
			continue // it clashed before it was damaged, and is not looked at again that soon
		}
		others := 0
		for _, o := range s.repairs.damages {
			if o.table == d.table && o != d && (o.shard == "" || o.shard == d.shard) {
				others++
			}
		}
		if f := s.checker.failures[d.table][d.shard]; others == 0 && (f.Code != "generation_damaged" || f.Generation != d.generation) {
			return fmt.Sprintf("table %s shard %s: generation %d is damaged, and etcd says that it fails with %q at %d", d.table, d.shard, d.generation, f.Code, f.Generation)
		}
	}
	return ""
}

// planRepairs lets the operator repair what is broken.
func (s *sim) planRepairs() {
	rs := s.repairs
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !rs.begun {
		s.world.trace.say("world", "what is damaged is repaired")
		rs.begun = true
	}
	rs.todo = nil
	for _, key := range slices.Sorted(maps.Keys(rs.damages)) {
		d := rs.damages[key]
		t := s.checker.tables[d.table]
		if f := s.checker.failures[d.table][d.shard]; d.skip && f.Code == "generation_damaged" && f.Generation == d.generation && t.marks[d.shard]+1 == d.generation {
			s.checker.skips[fmt.Sprintf("%s/%s/%d", t.id, d.shard, d.generation)] = true
			rs.todo = append(rs.todo, repair{d.table, d.shard, d.generation})
			continue
		}
		s.restore(key)
	}
	for _, name := range slices.Sorted(maps.Keys(s.checker.tables)) {
		t := s.checker.tables[name]
		for _, shard := range slices.Sorted(maps.Keys(s.checker.failures[name])) {
			if s.stuck(t, shard) {
				n := t.marks[shard] + 1
				s.checker.skips[fmt.Sprintf("%s/%s/%d", t.id, shard, n)] = true
				rs.todo = append(rs.todo, repair{name, shard, n})
			}
		}
		rs.todo = append(rs.todo, repair{table: name})
	}
}

// restoreRecords puts back what whole tables, and the claims and ends of shards, wait for, and has the operator say so: what
// has failed for the damage would wait for its backoff.
func (s *sim) restoreRecords() {
	s.repairs.mu.Lock()
	defer s.repairs.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.repairs.damages)) {
		if d := s.repairs.damages[key]; d.kind == "log" || d.kind == "manifest" {
			s.restore(key)
			s.repairs.todo = append(s.repairs.todo, repair{table: d.table})
		}
	}
}

// restore puts a damaged file back, if it is still there.
func (s *sim) restore(key string) {
	d := s.repairs.damages[key]
	delete(s.repairs.damages, key)
	if _, info, err := s.memory.Get(context.Background(), key); err == nil {
		s.memory.ReplaceIfMatch(context.Background(), key, d.was, info.ETag)
		s.world.trace.say("damage", "%s is restored", key)
	}
}

// operatorMain does what a person does about failures that waiting does not cure.
func (s *sim) operatorMain(p *process) error {
	client, err := s.dial(p)
	if err != nil {
		return err
	}
	defer client.Close()
	c := control.New(control.Deps{Client: client, Keys: keys, Store: s.storeOf(p), Clock: p.clock, Random: p.random, Log: s.log(p)})
	for p.clock.Sleep(p.ctx, repairEvery) == nil {
		s.repairs.mu.Lock()
		todo := s.repairs.todo
		s.repairs.todo = nil
		s.repairs.mu.Unlock()
		for _, r := range todo {
			ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
			if r.generation == 0 {
				_, err = c.Retry(ctx, r.table, "", control.Options{By: p.name}) // refused when there is nothing to retry
			} else {
				_, err = c.Skip(ctx, control.SkipRequest{Table: r.table, Shard: r.shard, Generation: r.generation, Reason: "it is broken"}, control.Options{By: p.name})
			}
			cancel()
			s.world.trace.say(p.name, "repairs %v: %v", r, err)
		}
	}
	return nil
}

// failureFile is what a record of outcomes says that a shard fails with.
type failureFile struct {
	Code       string `json:"code"`
	Generation uint64 `json:"generation"`
}

// outcome takes over a record of outcomes: <prefix>/outcomes/<table>/<group>.
func (c *checker) outcome(rest string, value []byte) {
	name, group, _ := strings.Cut(rest, "/")
	var o struct {
		Shards map[string]failureFile `json:"shards"`
	}
	if value != nil && json.Unmarshal(value, &o) != nil {
		c.world.fail("etcd %s is not an outcome", rest)
		return
	}
	if c.failures[name] == nil {
		c.failures[name] = map[string]failureFile{}
		c.failing[name] = map[string][]string{}
	}
	for _, shard := range c.failing[name][group] {
		delete(c.failures[name], shard)
	}
	c.failing[name][group] = slices.Collect(maps.Keys(o.Shards))
	maps.Copy(c.failures[name], o.Shards)
}

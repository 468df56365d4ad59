package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"

	"tidemark/internal/objstore"
)

// foreignName is the process of an engine of another make.
const foreignName = "foreign"

// foreignIDs is where the ids of a foreign engine's rows begin, above those of all writers.
const foreignIDs = 1 << 60

// foreignRetention is what the tables of a plan with a foreign engine keep removed files for.
const foreignRetention = 20 * time.Minute

// foreigner is an engine of another make on the append tables: it knows the Delta protocol and nothing else. It appends,
// deletes, rewrites and vacuums.
type foreigner struct {
	*sim
	p     *process
	r     *rand.Rand
	store objstore.Store
	next  int64
	seen  map[string]*replica // by table
}

// replica is what the engine knows of a table.
type replica struct {
	version int64
	live    map[string]string    // adds, by path
	removed map[string]time.Time // when, by the engine's clock
	ended   bool                 // dropped, or its log cannot be replayed from its beginning any more
}

func (s *sim) foreignMain(p *process) error {
	f := &foreigner{
		sim: s, p: p, r: s.world.draw(fmt.Sprintf("%s life %d", p.name, p.life)), store: s.storeOf(p),
		next: foreignIDs + int64(p.life)*rowsPerLife, seen: map[string]*replica{},
	}
	var names []string
	for _, t := range s.world.plan.tables {
		if !t.upsert {
			names = append(names, t.name)
		}
	}
	for len(names) > 0 && !s.stopped(p) {
		if p.clock.Sleep(p.ctx, between(f.r, time.Second, 30*time.Second)) != nil {
			return nil
		}
		f.act(names[f.r.IntN(len(names))])
	}
	return nil
}

// act does one thing to a table, if its log can be read.
func (f *foreigner) act(name string) {
	ctx, cancel := context.WithTimeout(f.p.ctx, 30*time.Second)
	defer cancel()
	v := f.seen[name]
	if v == nil {
		v = &replica{version: -1, live: map[string]string{}, removed: map[string]time.Time{}}
		f.seen[name] = v
	}
	if !f.follow(ctx, name, v) || v.version < 0 {
		return
	}
	paths := slices.Sorted(maps.Keys(v.live))
	var actions []string
	what := ""
	switch n := f.r.IntN(6); {
	case n == 0:
		f.vacuum(ctx, name, v)
		return
	case n <= 2 || len(paths) == 0:
		what = "FOREIGN APPEND"
		body := f.rows()
		actions = f.add(ctx, name, body, true)
	case n <= 4:
		what = "FOREIGN DELETE"
		actions = []string{f.remove(paths[f.r.IntN(len(paths))], true)}
	default:
		what = "FOREIGN OPTIMIZE"
		path := paths[f.r.IntN(len(paths))]
		body, _, err := f.store.Get(ctx, name+"/"+path)
		if err != nil {
			return
		}
		if _, err := (decoded{}).read(body); err != nil {
			return // it is damaged, and no engine copies what it cannot read
		}
		if actions = f.add(ctx, name, body, false); actions != nil {
			actions = append(actions, f.remove(path, false))
		}
	}
	if actions == nil {
		return
	}
	info := fmt.Sprintf(`{"commitInfo":{"timestamp":%d,"operation":%q,"engineInfo":"foreign"}}`, f.p.clock.Now().UnixMilli(), what)
	body := strings.Join(append([]string{info}, actions...), "\n") + "\n"
	// Whatever becomes of it: the log says so when it is read next.
	f.store.PutIfAbsent(ctx, fmt.Sprintf("%s/_delta_log/%020d.json", name, v.version+1), []byte(body))
}

// follow reads what is new in the log. It says whether all was read.
func (f *foreigner) follow(ctx context.Context, name string, v *replica) bool {
	for !v.ended {
		page, err := f.store.List(ctx, objstore.ListRequest{Prefix: name + "/_delta_log/", After: fmt.Sprintf("%s/_delta_log/%020d.json", name, max(v.version, 0)-1)})
		if err != nil {
			return false
		}
		var next []string
		for _, o := range page.Objects {
			number, isCommit := strings.CutSuffix(o.Key[strings.LastIndexByte(o.Key, '/')+1:], ".json")
			if n, err := strconv.ParseInt(number, 10, 64); isCommit && err == nil && n > v.version {
				next = append(next, o.Key)
			}
		}
		if len(next) == 0 {
			return true
		}
		for _, key := range next {
			if key != fmt.Sprintf("%s/_delta_log/%020d.json", name, v.version+1) {
				v.ended = true // cleaned up
				return false
			}
			body, _, err := f.store.Get(ctx, key)
			if err != nil || !v.replay(body, f.p.clock.Now()) {
				return false
			}
			v.version++
		}
	}
	return false
}

// replay takes over one commit.
func (v *replica) replay(body []byte, now time.Time) bool {
	for line := range bytes.Lines(body) {
		var a action
		if json.Unmarshal(line, &a) != nil {
			return false
		}
		switch {
		case a.Add != nil:
			v.live[a.Add.Path] = string(line)
		case a.Remove != nil:
			delete(v.live, a.Remove.Path)
			v.removed[a.Remove.Path] = now
		case a.MetaData != nil:
			v.ended = a.MetaData.Configuration["tidemark.dropped"] != ""
		}
	}
	return true
}

// rows is a file of new rows.
func (f *foreigner) rows() []byte {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fieldsOf(tablePlan{}), nil))
	defer b.Release()
	for range 1 + f.r.IntN(4) {
		f.next++
		b.Field(0).(*array.Int64Builder).Append(f.next)
	}
	rec := b.NewRecord()
	defer rec.Release()
	var file bytes.Buffer
	w, err := pqarrow.NewFileWriter(rec.Schema(), &file, parquet.NewWriterProperties(), pqarrow.DefaultWriterProps())
	if err != nil {
		panic(err) // nothing here depends on anything outside
	}
	if err := w.Write(rec); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return file.Bytes()
}

// add uploads a file and returns the action that adds it; nil if it could not be uploaded.
func (f *foreigner) add(ctx context.Context, name string, body []byte, change bool) []string {
	path := fmt.Sprintf("foreign-%016x.parquet", f.r.Uint64())
	if f.store.PutIfAbsent(ctx, name+"/"+path, body).Outcome != objstore.Applied {
		return nil
	}
	return []string{fmt.Sprintf(`{"add":{"path":%q,"partitionValues":{},"size":%d,"modificationTime":%d,"dataChange":%t}}`,
		path, len(body), f.p.clock.Now().UnixMilli(), change)}
}

func (f *foreigner) remove(path string, change bool) string {
	return fmt.Sprintf(`{"remove":{"path":%q,"deletionTimestamp":%d,"dataChange":%t}}`, path, f.p.clock.Now().UnixMilli(), change)
}

// vacuum deletes files that the table does not refer to and has not for its retention.
func (f *foreigner) vacuum(ctx context.Context, name string, v *replica) {
	page, err := f.store.List(ctx, objstore.ListRequest{Prefix: name + "/"})
	if err != nil || !f.follow(ctx, name, v) {
		return
	}
	for _, o := range page.Objects {
		path := strings.TrimPrefix(o.Key, name+"/")
		old := page.Date.Sub(o.Modified) >= foreignRetention
		if at, ok := v.removed[path]; ok && f.p.clock.Now().Sub(at) < foreignRetention {
			continue
		}
		if _, live := v.live[path]; live || !old || strings.HasPrefix(path, "_") {
			continue
		}
		f.world.trace.say(f.p.name, "vacuums %s", o.Key)
		_ = f.store.Delete(ctx, o.Key) // the next vacuum tries again
	}
}

package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"tidemark/internal/api"
	"tidemark/internal/control"
	"tidemark/internal/observe"
	"tidemark/internal/table"
)

// verdicts are what an overview's verdict says to a person.
var verdicts = map[observe.Verdict][2]string{
	observe.Blind:     {"No sight", "etcd cannot be followed now. What is shown may be old; executors go on with what is queued."},
	observe.Unowned:   {"Slots without a master", "Their tables are not looked after until a master takes them. If that lasts longer than a lease, start a master."},
	observe.Unserved:  {"Nobody merges", "Work is pending and no executor takes any. Start an executor, or let one that drains claim again."},
	observe.Attention: {"Needs attention", "Something fails that waiting will not cure."},
	observe.Behind:    {"Behind", "A table has waited longer than its policy allows."},
	observe.KeepingUp: {"Keeping up", "Everything pending is younger than its policy allows."},
	observe.CaughtUp:  {"Caught up", "Everything sealed is merged."},
}

func humanVerdict(v observe.Verdict) [2]string { return verdicts[v] }

func (p *Pages) overview(context.Context, *http.Request) (any, error) { return p.See.Overview(), nil }

// listing is a page of a list and what it takes to move in it.
type listing[T any] struct {
	observe.Page[T]
	Query observe.Query
	Path  string
}

// Last is the place of the last row, from 1.
func (l listing[T]) Last() int { return l.First + len(l.Items) }

// link is the address of the list with another order or place.
func (l listing[T]) link(change func(*observe.Query)) string {
	q := l.Query
	q.Cursor = ""
	change(&q)
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("search", q.Search)
	set("sort", q.Sort)
	set("cursor", q.Cursor)
	if q.Desc {
		v.Set("desc", "true")
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if len(v) == 0 {
		return l.Path
	}
	return l.Path + "?" + v.Encode()
}

// SortBy is the address of the list in another order: numbers begin with the largest, and a second click turns it round.
func (l listing[T]) SortBy(name string) string {
	return l.link(func(q *observe.Query) {
		q.Desc = name != "name" && name != "table" && name != "state"
		if q.Sort == name {
			q.Desc = !l.Query.Desc
		}
		q.Sort = name
	})
}

// Sorted says how a column is sorted, as aria-sort does.
func (l listing[T]) Sorted(name string) string {
	switch {
	case l.Query.Sort != name:
		return "none"
	case l.Query.Desc:
		return "descending"
	}
	return "ascending"
}

// NextPage and PrevPage are the addresses of the pages beside this one.
func (l listing[T]) NextPage() string { return l.link(func(q *observe.Query) { q.Cursor = l.Next }) }
func (l listing[T]) PrevPage() string { return l.link(func(q *observe.Query) { q.Cursor = l.Prev }) }

// listed reads the parameters of a list whose order, unless another is asked for, is that of sort and desc.
func listed[T any](r *http.Request, path, sort string, desc bool, read func(observe.Query) (observe.Page[T], error)) (listing[T], error) {
	q, err := api.ListQuery(r.URL.Query())
	if err != nil {
		return listing[T]{}, err
	}
	if q.Sort == "" {
		q.Sort, q.Desc = sort, desc
	}
	page, err := read(q)
	return listing[T]{Page: page, Query: q, Path: path}, err
}

func (p *Pages) tables(_ context.Context, r *http.Request) (any, error) {
	return listed(r, "/tables", "age", true, p.See.Tables)
}

func (p *Pages) failures(_ context.Context, r *http.Request) (any, error) {
	return listed(r, "/failures", "attention", false, p.See.Failures)
}

func (p *Pages) turns(context.Context, *http.Request) (any, error) { return p.See.Turns(""), nil }

func (p *Pages) executors(context.Context, *http.Request) (any, error) {
	return p.See.Executors(), nil
}

func (p *Pages) masters(context.Context, *http.Request) (any, error) {
	return struct {
		Masters []observe.Master
		Slots   int
		Owned   int
	}{p.See.Masters(), p.See.Overview().Cluster.Slots, p.See.Overview().SlotsOwned}, nil
}

// tablePage is one table.
type tablePage struct {
	observe.Table
	Detail   *observe.Detail
	Problem  string // of storage
	Shards   listing[observe.Shard]
	TopMark  int64 // the highest sealed mark on the page; bars are drawn by it
	Commits  []observe.Commit
	Older    string // address of the commits before these, or ""
	Newest   string // address of the newest commits, or "" if these are
	Turns    []observe.Turn
	Failures []observe.Failure
}

func (t tablePage) title() string { return t.Table.Table }

func (p *Pages) table(ctx context.Context, r *http.Request) (any, error) {
	name := r.PathValue("table")
	if err := table.CheckName(name); err != nil {
		return nil, err
	}
	row, known := p.See.Table(name)
	path := "/tables/" + url.PathEscape(name)
	before, err := commitsBefore(r)
	if err != nil {
		return nil, err
	}
	page := tablePage{Table: row, Turns: p.See.Turns(name), Failures: p.See.FailuresOf(name)}
	page.Table.Table = name
	detail, err := p.See.Detail(ctx, name)
	if err != nil && !known {
		return nil, err
	}
	if err != nil {
		page.Problem = err.Error()
	} else {
		page.Detail = &detail
		if !known {
			page.Mode = detail.Mode
		}
		// What the log says etcd knows one scan later at most.
		page.LogVersion, page.State = detail.Version, detail.State
		var more bool
		if page.Commits, more, err = p.See.Commits(ctx, name, before, 0); err != nil {
			page.Problem = err.Error()
		}
		if more {
			page.Older = fmt.Sprintf("%s?commits_before=%d", path, page.Commits[len(page.Commits)-1].Version)
		}
		if before > 0 {
			page.Newest = path
		}
	}
	page.Shards, err = listed(r, path, "pending", true, func(q observe.Query) (observe.Page[observe.Shard], error) { return p.See.Shards(name, q) })
	for _, s := range page.Shards.Items {
		if s.Sealed != nil {
			page.TopMark = max(page.TopMark, int64(s.Sealed.Generation))
		}
	}
	return page, err
}

// commitsBefore is the version below which commits are shown; 0 is none.
func commitsBefore(r *http.Request) (int64, error) {
	text := r.URL.Query().Get("commits_before")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, &observe.QueryError{Field: "commits_before", Reason: "not a version above 0"}
	}
	return n, nil
}

func (p *Pages) explain(ctx context.Context, r *http.Request) (any, error) {
	name := r.PathValue("table")
	if err := table.CheckName(name); err != nil {
		return nil, err
	}
	return p.Act.Explain(ctx, name)
}

// policyPart is the editor of a policy.
type policyPart struct {
	Table  string         // or control.DefaultPolicy
	Own    control.Origin // of the values that the editor changes; the others show through
	Values []control.PolicyValue
}

// IsDefault says that it is the policy of every table that does not say otherwise.
func (p policyPart) IsDefault() bool { return p.Table == control.DefaultPolicy }

func (p *Pages) policy(ctx context.Context, r *http.Request) (any, error) {
	name := r.PathValue("table")
	if err := table.CheckName(name); err != nil {
		return nil, err
	}
	values, err := p.Act.Policy(ctx, name)
	return policyPart{Table: name, Own: control.OriginTable, Values: values}, err
}

// defaultPolicy is the page around the editor of the default policy; it says how many tables that concerns.
func (p *Pages) defaultPolicy(context.Context, *http.Request) (any, error) {
	return p.See.Overview(), nil
}

func (p *Pages) defaultValues(ctx context.Context, _ *http.Request) (any, error) {
	values, err := p.Act.Policy(ctx, control.DefaultPolicy)
	return policyPart{Table: control.DefaultPolicy, Own: control.OriginDefault, Values: values}, err
}

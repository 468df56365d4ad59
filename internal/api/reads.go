package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"

	"tidemark/internal/control"
	"tidemark/internal/observe"
	"tidemark/internal/table"
)

// TableView is everything about one table but its lists.
type TableView struct {
	observe.Table
	// Detail is what the log says; null when storage cannot be read, and StorageProblem says why.
	Detail         *observe.Detail       `json:"detail"`
	StorageProblem string                `json:"storage_problem"`
	Policy         []control.PolicyValue `json:"policy"`
	CurrentFails   []observe.Failure     `json:"current_failures"`
}

func (v *V1) overview(context.Context, *http.Request) (any, error) { return v.see.Overview(), nil }

func (v *V1) history(_ context.Context, r *http.Request) (any, error) {
	after, err := number(r.URL.Query(), "after_ms")
	if err != nil {
		return nil, err
	}
	return map[string]any{"samples": v.see.Samples(after)}, nil
}

func (v *V1) tables(_ context.Context, r *http.Request) (any, error) {
	q, err := ListQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return v.see.Tables(q)
}

func (v *V1) table(ctx context.Context, r *http.Request) (any, error) {
	return ViewTable(ctx, v.see, v.act, r.PathValue("table"))
}

// ViewTable gathers what etcd and storage say of a table. A table that neither knows is an error; one that only one of
// them can be asked about is shown with what that one says.
func ViewTable(ctx context.Context, see *observe.Observer, act *control.Control, name string) (TableView, error) {
	if err := table.CheckName(name); err != nil {
		return TableView{}, err
	}
	row, known := see.Table(name)
	view := TableView{Table: row, CurrentFails: see.FailuresOf(name), Policy: []control.PolicyValue{}}
	detail, err := see.Detail(ctx, name)
	if err == nil {
		view.Detail, view.State = &detail, detail.State // the log knows first
		view.Policy, err = act.Policy(ctx, name)
	}
	switch {
	case err != nil && !known:
		return TableView{}, err
	case err != nil:
		view.StorageProblem = err.Error()
	case !known:
		view.Table = observe.Table{Table: name, Mode: detail.Mode, State: detail.State}
	}
	if view.Detail != nil {
		view.LogVersion = detail.Version
	}
	return view, nil
}

func (v *V1) shards(_ context.Context, r *http.Request) (any, error) {
	name := r.PathValue("table")
	q, err := ListQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	if err := table.CheckName(name); err != nil {
		return nil, err
	}
	if _, known := v.see.Table(name); !known {
		return nil, &table.UnknownTableError{Name: name, Root: v.see.Overview().Cluster.Root}
	}
	return v.see.Shards(name, q)
}

func (v *V1) everyShard(_ context.Context, r *http.Request) (any, error) {
	q, err := ListQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return v.see.EveryShard(q)
}

// commitsPage is a page of commits, the newest first.
type commitsPage struct {
	Items []observe.Commit `json:"items"`
	Next  string           `json:"next,omitempty"`
}

func (v *V1) commits(ctx context.Context, r *http.Request) (any, error) {
	query := r.URL.Query()
	limit, err := number(query, "limit")
	if err != nil {
		return nil, err
	}
	below, err := parseCommitCursor(query.Get("cursor"))
	if err != nil {
		return nil, err
	}
	if query.Has("limit") && limit == 0 {
		limit = -1 // 0 was asked for, and is refused like any other number out of range
	}
	items, more, err := v.see.Commits(ctx, r.PathValue("table"), below, int(min(limit, 1<<20)))
	if err != nil {
		return nil, err
	}
	page := commitsPage{Items: items}
	if more {
		page.Next = CommitCursor(items[len(items)-1].Version)
	}
	return page, nil
}

// CommitCursor is the cursor of the commits below a version.
func CommitCursor(version int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(version, 10)))
}

func parseCommitCursor(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		if n, err := strconv.ParseInt(string(b), 10, 64); err == nil && n > 0 {
			return n, nil
		}
	}
	return 0, &observe.QueryError{Field: "cursor", Reason: "it is not one that this API gave out"}
}

func (v *V1) policy(ctx context.Context, r *http.Request) (any, error) {
	name, err := policyOf(r)
	if err != nil {
		return nil, err
	}
	values, err := v.act.Policy(ctx, name)
	return map[string]any{"values": values}, err
}

func (v *V1) explain(ctx context.Context, r *http.Request) (any, error) {
	name, err := tableOf(r)
	if err != nil {
		return nil, err
	}
	return v.act.Explain(ctx, name)
}

// policyOf is the table whose policy a request is about, or the default.
func policyOf(r *http.Request) (string, error) {
	name := r.PathValue("table")
	if name == "" {
		return control.DefaultPolicy, nil
	}
	return name, table.CheckName(name)
}

func (v *V1) turns(_ context.Context, r *http.Request) (any, error) {
	return map[string]any{"items": v.see.Turns(r.URL.Query().Get("table"))}, nil
}

func (v *V1) executors(context.Context, *http.Request) (any, error) {
	return map[string]any{"items": v.see.Executors()}, nil
}

func (v *V1) masters(context.Context, *http.Request) (any, error) {
	return map[string]any{"items": v.see.Masters()}, nil
}

func (v *V1) failures(_ context.Context, r *http.Request) (any, error) {
	q, err := ListQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	return v.see.Failures(q)
}

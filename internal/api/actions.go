package api

import (
	"cmp"
	"context"
	"net/http"

	"tidemark/internal/control"
	"tidemark/internal/table"
)

// dryRun is part of every action's body.
type dryRun struct {
	DryRun bool `json:"dry_run"`
}

func (d dryRun) options(ctx context.Context) control.Options {
	return control.Options{DryRun: d.DryRun, By: By(ctx)}
}

// By says for the record who acts: the name beside the token; else, where none is asked for, whom the request's From header
// names; else that it came over HTTP.
func By(ctx context.Context) string { return cmp.Or(IdentityOf(ctx).Name, "http") }

// tableOf is the table that an action is about.
func tableOf(r *http.Request) (string, error) {
	name := r.PathValue("table")
	return name, table.CheckName(name)
}

// tableAndBody reads what an action on a table is told: the table in its path, and its body.
func tableAndBody(r *http.Request, body any) (string, error) {
	name, err := tableOf(r)
	if err == nil {
		err = readBody(r, body)
	}
	return name, err
}

func (v *V1) merge(ctx context.Context, r *http.Request) (any, error) {
	var body struct {
		Priority string `json:"priority"`
		dryRun
	}
	name, err := tableAndBody(r, &body)
	if err != nil {
		return nil, err
	}
	priority := control.PriorityNormal
	switch body.Priority {
	case "", "normal":
	case string(control.PriorityLow):
		priority = control.PriorityLow
	default:
		return nil, &BodyError{`priority: want "normal" or "low"`}
	}
	return v.act.Merge(ctx, name, priority, body.options(ctx))
}

func (v *V1) pause(ctx context.Context, r *http.Request) (any, error) {
	return onTable(ctx, r, v.act.Pause)
}

func (v *V1) resume(ctx context.Context, r *http.Request) (any, error) {
	return onTable(ctx, r, v.act.Resume)
}

// onTable is an action that needs to know nothing but the table.
func onTable(ctx context.Context, r *http.Request, act func(context.Context, string, control.Options) (control.Done, error)) (any, error) {
	var body dryRun
	name, err := tableAndBody(r, &body)
	if err != nil {
		return nil, err
	}
	return act(ctx, name, body.options(ctx))
}

func (v *V1) retry(ctx context.Context, r *http.Request) (any, error) {
	var body struct {
		Shard string `json:"shard"`
		dryRun
	}
	name, err := tableAndBody(r, &body)
	if err != nil {
		return nil, err
	}
	return v.act.Retry(ctx, name, body.Shard, body.options(ctx))
}

func (v *V1) skip(ctx context.Context, r *http.Request) (any, error) {
	var body struct {
		Shard      string `json:"shard"`
		Generation uint64 `json:"generation"`
		Reason     string `json:"reason"`
		dryRun
	}
	name, err := tableAndBody(r, &body)
	if err != nil {
		return nil, err
	}
	if body.Shard == "" || body.Generation == 0 {
		return nil, &BodyError{"give shard and generation, as the failure names them"}
	}
	request := control.SkipRequest{Table: name, Shard: body.Shard, Generation: body.Generation, Reason: body.Reason}
	return v.act.Skip(ctx, request, body.options(ctx))
}

func (v *V1) changePolicy(ctx context.Context, r *http.Request) (any, error) {
	var body struct {
		Set   map[string]string `json:"set"`
		Unset []string          `json:"unset"`
		dryRun
	}
	name, err := policyOf(r)
	if err == nil {
		err = readBody(r, &body)
	}
	if err != nil {
		return nil, err
	}
	return ChangePolicy(ctx, v.act, name, body.Set, body.Unset, body.options(ctx))
}

// ChangePolicy sets some values of a policy and unsets others. A value that could not be used is refused before anything
// is changed.
func ChangePolicy(ctx context.Context, act *control.Control, name string, set map[string]string, unset []string, o control.Options) (control.Done, error) {
	for _, n := range unset {
		if _, both := set[n]; both {
			return control.Done{}, &BodyError{"a value is both set and unset: " + n}
		}
	}
	if len(unset) == 0 {
		return act.SetPolicy(ctx, name, set, o)
	}
	if len(set) == 0 {
		return act.UnsetPolicy(ctx, name, unset, o)
	}
	first, err := act.SetPolicy(ctx, name, set, o)
	if err != nil {
		return first, err
	}
	second, err := act.UnsetPolicy(ctx, name, unset, o)
	if err != nil {
		return second, err
	}
	second.Action, second.Changed = "policy", first.Changed || second.Changed
	second.Sentence = first.Sentence + " " + second.Sentence
	return second, nil
}

func (v *V1) cancel(ctx context.Context, r *http.Request) (any, error) {
	var body struct {
		Sequence *int64 `json:"sequence"`
		dryRun
	}
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	request := control.CancelRequest{Execution: r.PathValue("execution"), Sequence: body.Sequence}
	return v.act.Cancel(ctx, request, body.options(ctx))
}

func (v *V1) drain(ctx context.Context, r *http.Request) (any, error) {
	return onExecutor(ctx, r, v.act.Drain)
}

func (v *V1) undrain(ctx context.Context, r *http.Request) (any, error) {
	return onExecutor(ctx, r, v.act.Undrain)
}

func onExecutor(ctx context.Context, r *http.Request, act func(context.Context, string, control.Options) (control.Done, error)) (any, error) {
	var body dryRun
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	return act(ctx, r.PathValue("executor"), body.options(ctx))
}

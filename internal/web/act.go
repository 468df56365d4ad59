package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tidemark/internal/api"
	"tidemark/internal/control"
)

// action is one thing a person can do on the page.
type action struct {
	Title   string // of the question
	Confirm string // on the button that does it
	Danger  bool   // it gives something up for good
	Reason  bool   // it asks for a reason
	run     func(ctx context.Context, act *control.Control, form url.Values, o control.Options) (control.Done, error)
}

var actions = map[string]action{
	"merge": {Title: "Merge now", Confirm: "Merge now", run: func(ctx context.Context, c *control.Control, f url.Values, o control.Options) (control.Done, error) {
		return c.Merge(ctx, f.Get("table"), control.PriorityNormal, o)
	}},
	"pause": {Title: "Pause the table", Confirm: "Pause", run: func(ctx context.Context, c *control.Control, f url.Values, o control.Options) (control.Done, error) {
		return c.Pause(ctx, f.Get("table"), o)
	}},
	"resume": {Title: "Resume the table", Confirm: "Resume", run: func(ctx context.Context, c *control.Control, f url.Values, o control.Options) (control.Done, error) {
		return c.Resume(ctx, f.Get("table"), o)
	}},
	"retry": {Title: "Retry what failed", Confirm: "Retry", run: func(ctx context.Context, c *control.Control, f url.Values, o control.Options) (control.Done, error) {
		return c.Retry(ctx, f.Get("table"), f.Get("shard"), o)
	}},
	"skip": {Title: "Skip the generation", Confirm: "Skip it for good", Danger: true, Reason: true, run: func(ctx context.Context, c *control.Control, f url.Values, o control.Options) (control.Done, error) {
		generation, err := strconv.ParseUint(f.Get("generation"), 10, 64)
		if err != nil {
			return control.Done{}, &api.BodyError{Reason: "generation is not a number"}
		}
		reason := f.Get("reason")
		if o.DryRun {
			reason = cmp.Or(reason, "not given yet") // it is asked for by the question
		}
		return c.Skip(ctx, control.SkipRequest{Table: f.Get("table"), Shard: f.Get("shard"), Generation: generation, Reason: reason}, o)
	}},
	"cancel": {Title: "Cancel the execution", Confirm: "Cancel the execution", run: func(ctx context.Context, c *control.Control, f url.Values, o control.Options) (control.Done, error) {
		return c.Cancel(ctx, control.CancelRequest{Execution: f.Get("execution")}, o)
	}},
	"drain": {Title: "Drain the executor", Confirm: "Drain", run: func(ctx context.Context, c *control.Control, f url.Values, o control.Options) (control.Done, error) {
		return c.Drain(ctx, f.Get("executor"), o)
	}},
	"undrain": {Title: "Let the executor claim again", Confirm: "Claim again", run: func(ctx context.Context, c *control.Control, f url.Values, o control.Options) (control.Done, error) {
		return c.Undrain(ctx, f.Get("executor"), o)
	}},
	"policy": {Title: "Change the policy", Confirm: "Change it", run: changePolicy},
}

// changePolicy sets the values of the editor that differ from what they were, and unsets those that were emptied.
func changePolicy(ctx context.Context, c *control.Control, f url.Values, o control.Options) (control.Done, error) {
	set, unset := map[string]string{}, []string{}
	for field := range f {
		name, ok := strings.CutPrefix(field, "policy.")
		if !ok {
			continue
		}
		value, was := strings.TrimSpace(f.Get(field)), f.Get("was."+name)
		switch {
		case value == was:
		case value == "":
			unset = append(unset, name)
		default:
			set[name] = value
		}
	}
	slices.Sort(unset)
	return api.ChangePolicy(ctx, c, f.Get("table"), set, unset, o)
}

func (d dialog) title() string { return d.What.Title }

// dialog is a question, or the answer to it.
type dialog struct {
	Action  string
	What    action
	Fields  []field // sent along with the answer
	Says    string  // what it would do, or did
	Changed bool
	Done    bool // it has been done
	Problem *api.Problem
}

type field struct{ Name, Value string }

// ask answers with a question: what the action would do, as its dry run says.
func (p *Pages) ask(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("action")
	what, ok := actions[name]
	if !ok {
		p.render(w, r, http.StatusNotFound, "problem", notFound(r.URL.Path))
		return
	}
	form := r.URL.Query()
	d := dialog{Action: name, What: what, Fields: fieldsOf(form)}
	p.answer(w, r, d, form, true)
}

// do does it and answers with what it did.
func (p *Pages) do(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("action")
	what, ok := actions[name]
	if !ok {
		p.render(w, r, http.StatusNotFound, "problem", notFound(r.URL.Path))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, formBytesMax)
	if err := r.ParseForm(); err != nil {
		problem := api.ProblemOf(&api.BodyError{Reason: "it is no form, or too long"})
		p.render(w, r, problem.Status, "problem", problem)
		return
	}
	p.answer(w, r, dialog{Action: name, What: what, Done: true}, r.PostForm, false)
}

func (p *Pages) answer(w http.ResponseWriter, r *http.Request, d dialog, form url.Values, dryRun bool) {
	ctx, cancel := context.WithTimeout(r.Context(), renderTimeout)
	defer cancel()
	done, err := d.What.run(ctx, p.Act, form, control.Options{DryRun: dryRun, By: api.By(r.Context())})
	if err != nil {
		problem := api.ProblemOf(err)
		var empty *control.Error
		if errors.As(err, &empty) && empty.Code() == control.CodeNothingToChange && d.Action == "policy" {
			problem.Detail = "Nothing was changed in the editor."
		}
		d.Problem = &problem
	}
	d.Says, d.Changed = strings.TrimPrefix(done.Sentence, "Dry run, nothing was changed: "), done.Changed
	part := "dialog"
	if !scripted(r) { // a browser that did not run the script gets a page of its own
		part = "layout"
	}
	p.write(w, http.StatusOK, "dialog", part, p.view(r, "dialog", d))
}

// fieldsOf is what a question sends along when it is confirmed, in order.
func fieldsOf(form url.Values) []field {
	var fields []field
	for name, values := range form {
		for _, v := range values {
			fields = append(fields, field{name, v})
		}
	}
	slices.SortFunc(fields, func(a, b field) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return fields
}

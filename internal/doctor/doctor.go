package doctor

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// checkTimeout bounds one check: a store or an etcd that takes longer is a finding by itself.
const checkTimeout = 20 * time.Second

// State is what a check found.
type State string

// The states.
const (
	OK    State = "ok"
	Note  State = "note"  // worth knowing; nothing is wrong
	Wrong State = "wrong" // somebody has to do something
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	State  State  `json:"state"`
	Says   string `json:"says"`
	Remedy string `json:"remedy,omitempty"`
}

// Deps are what the doctor works with.
type Deps struct {
	Store   objstore.Store
	Client  *clientv3.Client // nil if etcd could not be reached
	EtcdErr error            // why it could not
	Keys    etcd.Keys
	Clock   clock.Clock
	Random  random.Source
	Version string // of this program
}

// doctor collects findings.
type doctor struct {
	Deps
	cluster  etcd.Cluster // the zero value if it could not be read
	findings []Finding
}

func (d *doctor) ok(check, format string, args ...any) {
	d.findings = append(d.findings, Finding{Check: check, State: OK, Says: fmt.Sprintf(format, args...)})
}

func (d *doctor) note(check, remedy, format string, args ...any) {
	d.findings = append(d.findings, Finding{Check: check, State: Note, Says: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (d *doctor) wrong(check, remedy, format string, args ...any) {
	d.findings = append(d.findings, Finding{Check: check, State: Wrong, Says: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Examine makes every check and returns the findings in the order of the checks.
func Examine(ctx context.Context, deps Deps) []Finding {
	d := &doctor{Deps: deps}
	checks := []func(context.Context){d.root, d.guarantees, d.storeClock, d.defaultPolicy, d.members}
	if d.Client != nil {
		checks = append(checks, d.record, d.holder)
	}
	d.each(ctx, checks)
	if d.cluster.Slots > 0 {
		d.each(ctx, []func(context.Context){d.fleet, d.drains, d.queue, d.executions, d.demand, d.tables, d.attention})
	}
	return d.findings
}

func (d *doctor) each(ctx context.Context, checks []func(context.Context)) {
	for _, check := range checks {
		bounded, cancel := context.WithTimeout(ctx, checkTimeout)
		check(bounded)
		cancel()
	}
}

// Problems counts what is wrong.
func Problems(findings []Finding) (n int) {
	for _, f := range findings {
		if f.State == Wrong {
			n++
		}
	}
	return n
}

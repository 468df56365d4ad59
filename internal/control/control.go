package control

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/table"
)

// Deps are what actions work with. All but Log are needed; without Client only what storage knows can be asked or done.
type Deps struct {
	Client *clientv3.Client
	Keys   etcd.Keys
	Store  objstore.Store
	Clock  clock.Clock
	Random random.Source
	Log    hclog.Logger
}

// Control acts on one cluster. It keeps no state and is safe for concurrent use.
type Control struct {
	d Deps
}

// New makes a Control; nothing is asked or written.
func New(d Deps) *Control {
	if d.Log == nil {
		d.Log = hclog.NewNullLogger()
	}
	return &Control{d: d}
}

// Options are those of every action.
type Options struct {
	DryRun bool   // check everything, say what would be done, and do nothing
	By     string // who does it, for the record
}

// Done is what an action did, or would do.
type Done struct {
	Action   string `json:"action"`            // such as "pause"
	Table    string `json:"table,omitempty"`   // what it concerns
	Subject  string `json:"subject,omitempty"` // a shard, an executor, an execution, "_default"
	DryRun   bool   `json:"dry_run"`
	Changed  bool   `json:"changed"`  // false: it was so already
	Sentence string `json:"sentence"` // for people
}

// done makes a Done; the sentence is worded for a deed, and a dry run says so in front.
func (o Options) done(action, tableName, subject string, changed bool, format string, args ...any) Done {
	d := Done{Action: action, Table: tableName, Subject: subject, DryRun: o.DryRun, Changed: changed, Sentence: fmt.Sprintf(format, args...)}
	if o.DryRun {
		d.Sentence = "Dry run, nothing was changed: " + d.Sentence
	}
	return d
}

func (c *Control) tableDeps() table.Deps {
	return table.Deps{Clock: c.d.Clock, Random: c.d.Random, Log: c.d.Log}
}

func (c *Control) load(ctx context.Context, name string) (*table.Table, error) {
	return table.Load(ctx, c.d.Store, name, c.tableDeps())
}

// cluster reads the record of the cluster.
func (c *Control) cluster(ctx context.Context) (etcd.Cluster, error) {
	if c.d.Client == nil {
		return etcd.Cluster{}, refuse(CodeNoCluster, "no etcd is known, and this needs the cluster")
	}
	return etcd.ReadCluster(ctx, c.d.Client, c.d.Keys)
}

func (c *Control) nowMS() int64 { return c.d.Clock.Now().UnixMilli() }

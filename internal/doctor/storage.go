package doctor

import (
	"context"
	"errors"
	"time"

	"tidemark/internal/control"
	"tidemark/internal/objstore"
	"tidemark/internal/rootlock"
)

// clockDifferenceMax is how far this machine's clock may be from the store's. Clocks decide the order of service only; but
// S3 refuses requests that are signed fifteen minutes off, and people compare logs.
const clockDifferenceMax = time.Minute

func (d *doctor) root(ctx context.Context) {
	page, err := d.Store.List(ctx, objstore.ListRequest{Delimited: true})
	if err != nil {
		d.wrong("root", "Check --root, the credentials and the network between here and the store.", "%s cannot be listed: %v", d.Store.URL(), err)
		return
	}
	d.ok("root", "%s can be listed (%d folders and objects at the top)", d.Store.URL(), len(page.Dirs)+len(page.Objects))
}

func (d *doctor) guarantees(ctx context.Context) {
	err := objstore.Probe(ctx, d.Store, d.Random)
	var missing *objstore.ProbeError
	switch {
	case errors.As(err, &missing):
		d.wrong("store guarantees", "Use a store with atomic conditional writes, and no proxy that drops If-None-Match or If-Match. Do not run Tidemark on this one.", "%v", err)
	case err != nil:
		d.wrong("store guarantees", "Masters and executors need to create, replace and delete objects under the root: check their permissions and the space.",
			"could not be tried: %v", err)
	default:
		d.ok("store guarantees", "of eight creators of one key one wins, a stale replace is refused, and listings are in order")
	}
}

func (d *doctor) storeClock(ctx context.Context) {
	before := d.Clock.Now()
	page, err := d.Store.List(ctx, objstore.ListRequest{Prefix: "_tidemark/", Delimited: true})
	after := d.Clock.Now()
	switch {
	case err != nil:
		return // the root check has said so
	case page.Date.IsZero():
		d.note("clock", "", "the store does not say what time it is; what must be aged by its clock is left alone")
		return
	}
	difference := page.Date.Sub(before.Add(after.Sub(before) / 2)).Round(time.Millisecond)
	if difference.Abs() > clockDifferenceMax {
		d.wrong("clock", "Synchronise this machine's clock (and look at those of the writers): ages and the order of service are wrong by that much, and S3 refuses requests fifteen minutes off.",
			"the store's clock is %v ahead of this machine's", difference)
		return
	}
	d.ok("clock", "the store's clock and this machine's differ by %v", difference.Abs())
}

func (d *doctor) defaultPolicy(ctx context.Context) {
	values, err := control.New(control.Deps{Store: d.Store, Clock: d.Clock, Random: d.Random}).Policy(ctx, control.DefaultPolicy)
	if err != nil {
		d.wrong("default policy", "Repair it as the message says.", "%v", err)
		return
	}
	set := 0
	for _, v := range values {
		if v.Problem != "" {
			d.wrong("default policy", "Set a value that can be used, or `tidemark policy unset _default "+v.Name+"`.", "%s; %s = %s is in force instead", v.Problem, v.Name, v.Value)
			return
		}
		if v.Origin == control.OriginDefault {
			set++
		}
	}
	d.ok("default policy", "%d of %d values differ from the built-in ones", set, len(values))
}

// holder compares who may serve the root with the record of the cluster in etcd.
func (d *doctor) holder(ctx context.Context) {
	record, _, err := rootlock.Read(ctx, d.Store)
	switch {
	case err != nil:
		d.wrong("root holder", "Put a good copy back, or run the version of Tidemark that wrote it.", "%v", err)
	case record == nil || record.Kind == rootlock.Released:
		d.note("root holder", "", "nobody holds the root yet; the first master claims it")
	case d.cluster.ID != "" && record.ID != d.cluster.ID:
		d.wrong("root holder", "This etcd, or this --cluster, does not belong to this root: give the right ones. If the holder is stopped for good, see `tidemark root unlock --help`.",
			"the root is held by %s %q (id %s), and etcd has the record of id %s", record.Kind, record.Cluster, record.ID, d.cluster.ID)
	default:
		d.ok("root holder", "%s %q (id %s)", record.Kind, record.Cluster, record.ID)
	}
}

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"tidemark/internal/etcd"
)

const (
	// spaceShare of the quota is when space should be made before etcd takes only deletes.
	spaceShare = 0.8
	// quotaDefault is etcd's, for servers that do not tell theirs.
	quotaDefault = 2 << 30
)

const remedySpace = "Compact and defragment (`etcdctl compact`, `etcdctl defrag` on each member), then `etcdctl alarm disarm`; run etcd with --auto-compaction-retention=5m, and with a larger --quota-backend-bytes for a large fleet."

// members looks at each endpoint.
func (d *doctor) members(ctx context.Context) {
	if d.Client == nil {
		d.wrong("etcd", "Start etcd, or give the right --etcd. Nothing is lost meanwhile: writers seal on, and everything resumes by itself.", "%v", d.EtcdErr)
		return
	}
	var versions []string
	for _, endpoint := range d.Client.Endpoints() {
		check := "etcd " + endpoint
		status, err := d.Client.Status(ctx, endpoint)
		if err != nil {
			d.wrong(check, "Start this member, or take it out of --etcd if it is gone for good.", "does not answer: %v", err)
			continue
		}
		if !slices.Contains(versions, status.Version) {
			versions = append(versions, status.Version)
		}
		quota := status.DbSizeQuota
		if quota == 0 {
			quota = quotaDefault
		}
		says := fmt.Sprintf("version %s, %d MiB of %d MiB, %d MiB of it in use", status.Version, status.DbSize>>20, quota>>20, status.DbSizeInUse>>20)
		switch {
		case status.Leader == 0:
			d.wrong(check, "A majority of the members must see each other: look at their logs and the network between them.", "sees no leader; %s", says)
		case float64(status.DbSize) > spaceShare*float64(quota):
			d.wrong(check, remedySpace, "is almost full: %s", says)
		case len(status.Errors) > 0:
			d.wrong(check, "See `etcdctl endpoint status` and the member's log.", "reports %s; %s", strings.Join(status.Errors, ", "), says)
		default:
			d.ok(check, "%s", says)
		}
	}
	if len(versions) > 1 {
		d.note("etcd versions", "Finish the upgrade: run one version on all members.", "members run %s", strings.Join(versions, " and "))
	}
	d.alarms(ctx)
}

func (d *doctor) alarms(ctx context.Context) {
	alarms, err := d.Client.AlarmList(ctx)
	switch {
	case err != nil:
		d.wrong("etcd alarms", "See the checks of its members above.", "cannot be listed: %v", err)
	case len(alarms.Alarms) == 0:
		d.ok("etcd alarms", "none")
	}
	if err != nil {
		return
	}
	for _, a := range alarms.Alarms {
		remedy := "See etcd's documentation on this alarm."
		switch a.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			remedy = remedySpace
		case etcdserverpb.AlarmType_CORRUPT:
			remedy = "Replace that member by an empty one, which copies the others' data. Tidemark rebuilds its own keys from storage in any case."
		}
		d.wrong("etcd alarms", remedy, "member %x raises %v", a.MemberID, a.Alarm)
	}
}

// record reads the record of the cluster, which every process of it must agree on.
func (d *doctor) record(ctx context.Context) {
	cluster, err := etcd.ReadCluster(ctx, d.Client, d.Keys)
	switch {
	case errors.Is(err, etcd.ErrNoCluster):
		d.wrong("cluster", "Start a master of this cluster, or give the right --cluster or --prefix.", "no master has served %s in this etcd", d.Keys.Prefix)
	case err != nil:
		d.wrong("cluster", "See the checks of etcd above; if the record is of a newer version, use that version of this program.", "%v", err)
	default:
		d.cluster = cluster
		d.ok("cluster", "%q (id %s) with %d slots", cluster.Name, cluster.ID, cluster.Slots)
	}
}

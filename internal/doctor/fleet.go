package doctor

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/etcd"
)

// keys visits every key below a prefix.
func (d *doctor) keys(ctx context.Context, prefix string, visit func(kv *mvccpb.KeyValue)) error {
	_, err := etcd.ReadPages(ctx, d.Client, prefix, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			visit(kv)
		}
		return nil
	})
	return err
}

// unread is the finding of a check that could not read etcd.
func (d *doctor) unread(check string, err error) {
	d.wrong(check, "See the checks of etcd above.", "could not be read: %v", err)
}

// fleet looks at masters, slots and executors.
func (d *doctor) fleet(ctx context.Context) {
	versions := map[string][]string{}
	version := func(kv *mvccpb.KeyValue, name string) (draining bool) {
		var v struct {
			Version  string
			Draining bool
		}
		if json.Unmarshal(kv.Value, &v) == nil && v.Version != "" {
			versions[v.Version] = append(versions[v.Version], name)
		}
		return v.Draining
	}
	masters, free, executors, draining := 0, d.cluster.Slots, 0, 0
	err := d.keys(ctx, d.Keys.Masters(), func(kv *mvccpb.KeyValue) {
		if name, err := d.Keys.ParseMaster(string(kv.Key)); err == nil {
			masters++
			version(kv, "master "+name)
		}
	})
	if err == nil {
		err = d.keys(ctx, d.Keys.Slots(), func(*mvccpb.KeyValue) { free-- })
	}
	if err == nil {
		err = d.keys(ctx, d.Keys.Executors(), func(kv *mvccpb.KeyValue) {
			if name, err := d.Keys.ParseExecutor(string(kv.Key)); err == nil {
				executors++
				if version(kv, "executor "+name) {
					draining++
				}
			}
		})
	}
	if err != nil {
		d.unread("fleet", err)
		return
	}
	switch {
	case masters == 0:
		d.wrong("masters", "Start a master. Until then executors finish what is queued, and nothing new is.", "none is running")
	case free > 0:
		d.wrong("masters", "Wait for a lease's time (15 s by default) if a master has just started or died; else look at the masters' /status and logs.",
			"%d are running, and %d of %d slots have no owner: nothing new of their tables is queued", masters, free, d.cluster.Slots)
	default:
		d.ok("masters", "%d, owning all %d slots", masters, d.cluster.Slots)
	}
	switch {
	case executors == 0:
		d.wrong("executors", "Start an executor.", "none is running, so nothing is merged")
	case executors == draining:
		d.wrong("executors", "`tidemark undrain` one, or start another.", "all %d are draining, so nothing new is merged", executors)
	default:
		d.ok("executors", "%d, of which %d drain", executors, draining)
	}
	d.versions(versions)
}

// versions compares what runs with this program.
func (d *doctor) versions(running map[string][]string) {
	names := slices.Sorted(maps.Keys(running))
	switch {
	case len(names) == 0:
	case len(names) > 1:
		var parts []string
		for _, v := range names {
			parts = append(parts, v+" ("+strings.Join(running[v], ", ")+")")
		}
		d.note("versions", "Finish the upgrade: run one version of masters and executors.", "several are running: %s", strings.Join(parts, "; "))
	case names[0] != d.Version:
		d.note("versions", "Use the same version of this program as the cluster.", "the cluster runs %s, and this program is %s", names[0], d.Version)
	default:
		d.ok("versions", "everything is %s", d.Version)
	}
}

// drains finds requests to drain executors that are not there.
func (d *doctor) drains(ctx context.Context) {
	live, asked := map[string]bool{}, []string{}
	err := d.keys(ctx, d.Keys.Executors(), func(kv *mvccpb.KeyValue) {
		if name, err := d.Keys.ParseExecutor(string(kv.Key)); err == nil {
			live[name] = true
		}
	})
	if err == nil {
		err = d.keys(ctx, d.Keys.Drains(), func(kv *mvccpb.KeyValue) {
			if name, err := d.Keys.ParseDrain(string(kv.Key)); err == nil && !live[name] {
				asked = append(asked, name)
			}
		})
	}
	switch {
	case err != nil:
		d.unread("drains", err)
	case len(asked) > 0:
		d.note("drains", "`tidemark undrain` them if they are gone for good, or are to work when they come back.",
			"executors that are not running would drain if they came back: %s", strings.Join(asked, ", "))
	}
}

package maintain

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/table"
)

// ErrNotDropped: only what is left of a dropped table is purged.
var ErrNotDropped = errors.New("the table is not dropped")

// PlanPurge says what Purge would delete now of a dropped table, and changes nothing.
//
//  1. Base files by the rule of every cleanup: no snapshot within the retention refers to them. A drop removes all, so all
//     go once the retention has passed since.
//  2. From then on also the generations and manifests of all lives that are as old, apart from each shard's newest
//     manifest, which says that it is retired.
//
// The log stays: its numbers are never used again, and a table that is created again goes on with it. Should that happen
// meanwhile, all its files are younger than any retention.
func PlanPurge(ctx context.Context, d Deps, name string) (Plan, error) {
	if err := table.CheckName(name); err != nil {
		return Plan{}, err
	}
	files, date, err := baseFiles(ctx, d.Store, name)
	if err != nil {
		return Plan{}, err
	}
	log := deltalog.Open(d.Store, name, deltalog.Options{Clock: d.Clock, Random: d.Random, Log: d.Log})
	snapshot, err := log.Snapshot(ctx)
	if err != nil {
		return Plan{}, err
	}
	droppedMS, err := strconv.ParseInt(snapshot.Metadata.Configuration[deltalog.PropertyDropped], 10, 64)
	if err != nil {
		return Plan{}, fmt.Errorf("table %s: %w; `tidemark table drop` does that", name, ErrNotDropped)
	}
	properties, err := deltalog.ParseProperties(snapshot.Metadata.Configuration)
	if err != nil {
		return Plan{}, fmt.Errorf("table %s: %w", name, err)
	}
	p := Plan{Table: name, TableID: snapshot.Metadata.ID, Version: snapshot.Version}
	if p.Deletions, err = sweep(&table.Table{Name: name, Snapshot: snapshot}, files, date); err != nil {
		return Plan{}, err
	}
	retention := max(properties.DeletedFileRetention, sweepAgeMin)
	if date.Sub(time.UnixMilli(droppedMS)) >= retention {
		if err := planShardsPurge(ctx, d.Store, name, retention, &p); err != nil {
			return Plan{}, err
		}
	}
	if len(p.Deletions) > deletionsMax {
		p.Deletions, p.More = p.Deletions[:deletionsMax], true
	}
	return p, nil
}

// planShardsPurge plans the deletion of what lies under all shards of all lives. Manifests are listed the newest first.
func planShardsPurge(ctx context.Context, s objstore.Store, name string, retention time.Duration, p *Plan) error {
	req := objstore.ListRequest{Prefix: name + "/_shards/"}
	newestOf := "" // the folder of manifests whose newest was passed
	for {
		page, err := s.List(ctx, req)
		if err != nil {
			return fmt.Errorf("table %s: list its shards: %w", name, err)
		}
		for _, o := range page.Objects {
			kind := Generation
			if folder := path.Dir(o.Key); path.Base(folder) == "manifest" {
				kind = Manifest
				if folder != newestOf {
					newestOf = folder
					continue
				}
			}
			if age := page.Date.Sub(o.Modified); age >= retention {
				p.Deletions = append(p.Deletions, Deletion{Kind: kind, Key: o.Key, Bytes: o.Size, Why: fmt.Sprintf(
					"the table was dropped longer ago than its retention of %v, and so was this written", retention)})
			}
		}
		if !page.More {
			return nil
		}
		req.After = page.Next
	}
}

// Purge deletes what PlanPurge says. It stops at the first error; what is done stays done, and calling it again goes on.
func Purge(ctx context.Context, d Deps, name string) (Report, error) {
	p, err := PlanPurge(ctx, d, name)
	if err != nil {
		return Report{}, err
	}
	r := Report{Table: name, TableID: p.TableID, ObjectsDeleted: map[Kind]int{}, CheckpointVersion: -1, More: p.More}
	return r, r.delete(ctx, d, p.Deletions)
}

package shardmanifest

import (
	"context"
	"fmt"
	"path"
	"time"

	"tidemark/internal/objstore"
)

// FileAgeMin is how long, by the store's clock, a generation file outlives the trim that removed it from the manifest:
// long enough for a reader that planned from the manifest before.
const FileAgeMin = time.Hour

// Garbage is an object that may be deleted, and why.
type Garbage struct {
	Key      string
	Bytes    int64
	Manifest bool // a manifest; else a generation file
	Why      string
}

// Garbage lists, without changing anything, what of the shard may be deleted now:
//
//   - manifests at or below the durable boundary, except those that date a trim;
//   - generation files that no manifest names: of generations trimmed an hour ago, and of numbers between the last
//     trim and sealed_through, which can never be named any more. A file above sealed_through may be on its way into a
//     manifest and is left alone.
//
// Ages are the store's dates compared with the store's own clock.
func (c *Chain) Garbage(ctx context.Context) ([]Garbage, error) {
	newest, err := c.Latest(ctx)
	if err != nil {
		return nil, err
	}
	manifests, err := c.listManifests(ctx)
	if err != nil {
		return nil, err
	}
	files, err := c.listFiles(ctx)
	if err != nil {
		return nil, err
	}
	return append(newest.garbageManifests(manifests.objects), newest.garbageFiles(files, manifests.released(newest.Trims))...), nil
}

// Clean deletes what Garbage listed. Deleting is idempotent; it stops at the first error.
func (c *Chain) Clean(ctx context.Context, garbage []Garbage) (objects int, bytes int64, err error) {
	for _, g := range garbage {
		if err := c.store.Delete(ctx, g.Key); err != nil {
			return objects, bytes, c.wrap("delete "+g.Key, err)
		}
		objects++
		bytes += g.Bytes
	}
	return objects, bytes, nil
}

// numbered is a listed object and the number in its name: a version, or a generation.
type numbered struct {
	objstore.Info
	number uint64
}

// manifestList is every manifest object of the chain, with the store's time of the listing.
type manifestList struct {
	objects []numbered
	date    time.Time
}

// released is the highest generation whose trim is an hour old or more; its files and all lower ones may be deleted.
func (l manifestList) released(trims []Trim) uint64 {
	modified := make(map[uint64]time.Time, len(l.objects))
	for _, o := range l.objects {
		modified[o.number] = o.Modified
	}
	var through uint64
	for _, t := range trims {
		at, listed := modified[t.Version]
		if listed && l.date.Sub(at) >= FileAgeMin {
			through = max(through, t.Through)
		}
	}
	return through
}

// garbageManifests picks the manifests that may be deleted.
func (m *Manifest) garbageManifests(listed []numbered) []Garbage {
	dates := make(map[uint64]bool, len(m.Trims))
	for _, t := range m.Trims {
		dates[t.Version] = true
	}
	var garbage []Garbage
	for _, o := range listed {
		if o.number <= m.Boundary && !dates[o.number] {
			garbage = append(garbage, Garbage{o.Key, o.Size, true,
				fmt.Sprintf("manifest version %d is not above the boundary %d", o.number, m.Boundary)})
		}
	}
	return garbage
}

// garbageFiles picks the generation files that may be deleted.
func (m *Manifest) garbageFiles(listed []numbered, released uint64) []Garbage {
	var garbage []Garbage
	for _, o := range listed {
		switch {
		case o.number <= released:
			garbage = append(garbage, Garbage{o.Key, o.Size, false, fmt.Sprintf("generation %d was trimmed an hour ago or more", o.number)})
		case o.number > m.TrimmedThrough && o.number <= m.SealedThrough && !m.names(o):
			garbage = append(garbage, Garbage{o.Key, o.Size, false,
				fmt.Sprintf("no manifest names it, and none can: generation %d is sealed from another file", o.number)})
		}
	}
	return garbage
}

// names reports whether the manifest lists exactly this generation file.
func (m *Manifest) names(file numbered) bool {
	g, listed := m.Generation(file.number)
	return listed && path.Base(g.Path) == path.Base(file.Key)
}

// listManifests lists every manifest object.
func (c *Chain) listManifests(ctx context.Context) (manifestList, error) {
	var list manifestList
	err := c.eachObject(ctx, c.manifestPrefix(), func(o objstore.Info, date time.Time) {
		if version, ok := parseManifestName(path.Base(o.Key)); ok {
			list.objects = append(list.objects, numbered{o, version})
			list.date = date
		}
	})
	return list, err
}

// listFiles lists every generation file.
func (c *Chain) listFiles(ctx context.Context) ([]numbered, error) {
	var files []numbered
	err := c.eachObject(ctx, c.generationPrefix(), func(o objstore.Info, _ time.Time) {
		if number, ok := parseGenerationName(path.Base(o.Key)); ok {
			files = append(files, numbered{o, number})
		}
	})
	return files, err
}

func (c *Chain) eachObject(ctx context.Context, prefix string, visit func(objstore.Info, time.Time)) error {
	req := objstore.ListRequest{Prefix: prefix}
	for {
		page, err := c.store.List(ctx, req)
		if err != nil {
			return c.wrap("list "+prefix, err)
		}
		for _, o := range page.Objects {
			visit(o, page.Date)
		}
		if !page.More {
			return nil
		}
		req.After = page.Next
	}
}

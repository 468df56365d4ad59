package shardmanifest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"strings"

	"tidemark/internal/objstore"
)

// Head is the newest manifest of a shard as a listing shows it, unread.
type Head struct {
	Shard   string
	Version uint64
}

// ShardError is the failure of one shard in a pass over many; the others go on.
type ShardError struct {
	Shard string
	Err   error
}

func (e *ShardError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ShardError) Unwrap() error { return e.Err }

// ListHeads finds the newest manifest of every shard of one life of a table, in the order of shard names, by one
// recursive listing. Of a shard with more than a page of files only the first page of each folder is listed, so the cost
// is one request per some 300 shards that have a few files, and at most two more per shard that has many.
func ListHeads(ctx context.Context, s objstore.Store, table, tableID string) iter.Seq2[Head, error] {
	return func(yield func(Head, error) bool) {
		prefix := shardsDir(table, tableID) + "/"
		done := "" // the shard that was yielded last
		after := ""
		for {
			page, err := s.List(ctx, objstore.ListRequest{Prefix: prefix, After: after})
			if err != nil {
				yield(Head{}, fmt.Errorf("table %s: list shards: %w", table, err))
				return
			}
			for _, o := range page.Objects {
				shard, folder, name := splitKey(strings.TrimPrefix(o.Key, prefix))
				version, ok := parseManifestName(name)
				if folder != "manifest" || !ok || shard == done {
					continue
				}
				done = shard
				if !yield(Head{Shard: shard, Version: version}, nil) {
					return
				}
			}
			if !page.More {
				return
			}
			after = skip(prefix, page.Next, done)
		}
	}
}

// skip moves a listing past what cannot hold a newest manifest that is still wanted: the rest of a gen folder, and the
// rest of a manifest folder whose newest has been seen. '0' is the character after '/'.
func skip(prefix, next, done string) string {
	shard, folder, _ := splitKey(strings.TrimPrefix(next, prefix))
	switch {
	case folder == "gen":
		return max(next, prefix+shard+"/gen0")
	case folder == "manifest" && shard == done:
		return max(next, prefix+shard+"/manifest0")
	}
	return next
}

// splitKey splits shard/folder/name; missing parts are empty.
func splitKey(relative string) (shard, folder, name string) {
	parts := strings.SplitN(relative, "/", 3)
	parts = append(parts, "", "")
	return parts[0], parts[1], parts[2]
}

// ListLatest yields the newest manifest of every shard, in the order of shard names. Those in known, by shard name, are
// not read again unless there is a newer one; it may be nil. A shard whose manifest cannot be read is a *ShardError, and
// the pass goes on; any other error ends it.
func ListLatest(ctx context.Context, s objstore.Store, table, tableID string, known map[string]*Manifest) iter.Seq2[*Manifest, error] {
	return func(yield func(*Manifest, error) bool) {
		for head, err := range ListHeads(ctx, s, table, tableID) {
			if err != nil {
				yield(nil, err)
				return
			}
			m := known[head.Shard]
			if m == nil || m.TableID != tableID || m.Version != head.Version {
				m, err = loadNewest(ctx, s, table, tableID, head)
			}
			if err != nil {
				if !yield(nil, &ShardError{Shard: head.Shard, Err: err}) {
					return
				}
				continue
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// loadNewest reads a listed head, or what has become the newest if cleanup has deleted it since.
func loadNewest(ctx context.Context, s objstore.Store, table, tableID string, head Head) (*Manifest, error) {
	m, err := load(ctx, s, table, tableID, head.Shard, head.Version)
	if errors.Is(err, objstore.ErrNotFound) {
		return Open(s, table, tableID, head.Shard, Options{}).Latest(ctx)
	}
	return m, err
}

// ListShards lists the names of all shards of one life of a table, retired ones included, in order.
func ListShards(ctx context.Context, s objstore.Store, table, tableID string) ([]string, error) {
	var shards []string
	req := objstore.ListRequest{Prefix: shardsDir(table, tableID) + "/", Delimited: true}
	for {
		page, err := s.List(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("table %s: list shards: %w", table, err)
		}
		for _, dir := range page.Dirs {
			shards = append(shards, path.Base(dir))
		}
		if !page.More {
			return shards, nil
		}
		req.After = page.Next
	}
}

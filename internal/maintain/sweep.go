package maintain

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/table"
)

// sweepAgeMin is the least age of an unreferenced base data file that is deleted, whatever the table's retention.
const sweepAgeMin = 24 * time.Hour

// baseFiles lists the Parquet files of a table that are not below a hidden folder, as other engines' vacuum does, with
// the store's time of the listing's beginning, which makes every file look younger rather than older.
func baseFiles(ctx context.Context, s objstore.Store, name string) (files []objstore.Info, date time.Time, err error) {
	folders := []string{name + "/"}
	for len(folders) > 0 {
		folder := folders[0]
		folders = folders[1:]
		req := objstore.ListRequest{Prefix: folder, Delimited: true}
		for {
			page, err := s.List(ctx, req)
			if err != nil {
				return nil, time.Time{}, fmt.Errorf("table %s: list its data files: %w", name, err)
			}
			if date.IsZero() {
				date = page.Date
			}
			for _, o := range page.Objects {
				if !hidden(o.Key) && strings.HasSuffix(o.Key, ".parquet") {
					files = append(files, o)
				}
			}
			for _, dir := range page.Dirs {
				if !hidden(dir) {
					folders = append(folders, dir)
				}
			}
			if !page.More {
				break
			}
			req.After = page.Next
		}
	}
	return files, date, nil
}

// hidden reports whether the last segment of a key or folder is one that engines skip. A partition folder of a column
// whose name begins with an underscore is not hidden.
func hidden(key string) bool {
	last := path.Base(key)
	return strings.HasPrefix(last, ".") || strings.HasPrefix(last, "_") && !strings.Contains(last, "=")
}

// sweep picks the base files that nothing refers to and nothing can commit any more.
func sweep(t *table.Table, files []objstore.Info, date time.Time) ([]Deletion, error) {
	properties, err := deltalog.ParseProperties(t.Snapshot.Metadata.Configuration)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", t.Name, err)
	}
	retention := properties.DeletedFileRetention
	ageMin := max(retention, sweepAgeMin)
	var deletions []Deletion
	for _, f := range files {
		relative := strings.TrimPrefix(f.Key, t.Name+"/")
		age := date.Sub(f.Modified)
		if age < ageMin || referenced(t.Snapshot, relative, date, retention) {
			continue
		}
		deletions = append(deletions, Deletion{Kind: Base, Key: f.Key, Bytes: f.Size, Why: fmt.Sprintf(
			"no snapshot within the retention of %v refers to it, and at %v old nothing can commit it any more", retention, age.Round(time.Minute))})
	}
	return deletions, nil
}

// referenced reports whether the newest snapshot holds a file, or one within the retention may.
func referenced(s *deltalog.Snapshot, relative string, date time.Time, retention time.Duration) bool {
	if _, live := s.File(relative); live {
		return true
	}
	removed, remembered := s.Tombstone(relative)
	return remembered && date.Sub(time.UnixMilli(removed.DeletionTimestamp)) < retention
}

package table

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"tidemark/internal/objstore"
)

const logDir = "_delta_log"

// List returns the names of all Delta tables under the root, in order, dropped ones and foreign ones included; Load tells
// them apart. Those of other engines whose names no table of ours can have are left out. It descends folder by folder and not below a table, so it costs about one request per folder.
func List(ctx context.Context, s objstore.Store) ([]string, error) {
	var names []string
	err := descend(ctx, s, "", 0, func(name string) bool {
		if CheckName(name) == nil {
			names = append(names, name)
		}
		return true
	})
	return names, err
}

// descend finds the tables below a folder ("" or with a trailing slash), until found returns false. The folder itself is
// not looked at as a table.
func descend(ctx context.Context, s objstore.Store, folder string, depth int, found func(name string) bool) error {
	_, below, err := folders(ctx, s, folder, false)
	if err != nil {
		return err
	}
	_, err = descendInto(ctx, s, below, depth, found)
	return err
}

func descendInto(ctx context.Context, s objstore.Store, dirs []string, depth int, found func(name string) bool) (more bool, err error) {
	if depth == segmentsMax {
		return true, nil
	}
	for _, dir := range dirs {
		is, below, err := folders(ctx, s, dir, true)
		if err != nil {
			return false, err
		}
		if is {
			more = found(strings.TrimSuffix(dir, "/"))
		} else {
			more, err = descendInto(ctx, s, below, depth+1, found)
		}
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// folders lists what lies in a folder: whether it is a table, and else the folders in which tables may be. The log sorts
// before the data files of most engines, so a table costs one page.
func folders(ctx context.Context, s objstore.Store, folder string, mayBeTable bool) (is bool, below []string, err error) {
	req := objstore.ListRequest{Prefix: folder, Delimited: true}
	for {
		page, err := s.List(ctx, req)
		if err != nil {
			return false, nil, fmt.Errorf("looking for tables under %s/%s: %w", s.URL(), folder, err)
		}
		for _, dir := range page.Dirs {
			switch segment := path.Base(dir); {
			case segment == logDir && mayBeTable:
				return true, nil, nil
			case !hidden(segment):
				below = append(below, dir)
			}
		}
		if !page.More {
			return false, below, nil
		}
		req.After = page.Next
	}
}

// isTable reports whether there is a Delta log of that name.
func isTable(ctx context.Context, s objstore.Store, name string) (bool, error) {
	page, err := s.List(ctx, objstore.ListRequest{Prefix: name + "/" + logDir + "/", Max: 1})
	if err != nil {
		return false, fmt.Errorf("looking for table %s: %w", name, err)
	}
	return len(page.Objects) > 0, nil
}

// checkOuter refuses a name inside another table, even a dropped one: its folder is still swept.
func checkOuter(ctx context.Context, s objstore.Store, name string) error {
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		is, err := isTable(ctx, s, name[:i])
		if err != nil {
			return err
		}
		if is {
			return &DefinitionError{name, fmt.Sprintf("it would lie inside the table %s, whose vacuum would delete it; choose a name beside it", name[:i])}
		}
	}
	return nil
}

// checkInner refuses a name around another table. What is left of a dropped one may lie inside.
func checkInner(ctx context.Context, s objstore.Store, name string, d Deps) error {
	inner := ""
	found := func(found string) bool {
		if _, err := Load(ctx, s, found, d); !errors.Is(err, ErrDropped) {
			inner = found
		}
		return inner == ""
	}
	if err := descend(ctx, s, name+"/", strings.Count(name, "/")+1, found); err != nil {
		return err
	}
	if inner != "" {
		return &DefinitionError{name, fmt.Sprintf("the table %s would lie inside it, and vacuum would delete that; choose a name beside it", inner)}
	}
	return nil
}

package objstore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// List implements [Store]. It reads only directories that can hold a key of the page, and looks at the files of the
// page alone.
func (l *Local) List(ctx context.Context, req ListRequest) (Page, error) {
	if err := checkList(&req); err != nil {
		return Page{}, err
	}
	w := walk{ctx: ctx, local: l, req: req, page: Page{Date: l.clock.Now()}}
	// Every key under the prefix lies in the directory that the prefix names up to its last slash.
	start := req.Prefix[:strings.LastIndexByte(req.Prefix, '/')+1]
	if _, err := w.dir(start); err != nil {
		return Page{}, failLocal(OpList, req.Prefix, err)
	}
	return w.page, nil
}

type walk struct {
	ctx   context.Context
	local *Local
	req   ListRequest
	page  Page
}

// dir adds the entries below a directory, given with its trailing slash, to the page. It reports whether the page is
// complete.
func (w *walk) dir(dir string) (full bool, err error) {
	names, err := w.local.names(w.ctx, dir, w.wanted)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		isDir := strings.HasSuffix(name, "/")
		if isDir && !w.req.Delimited {
			if full, err := w.dir(name); full || err != nil {
				return full, err
			}
			continue
		}
		var info Info
		if isDir {
			filled, err := w.local.filled(w.ctx, name)
			if err != nil {
				return false, err
			}
			if !filled {
				continue
			}
		} else {
			stat, err := os.Lstat(w.local.path(name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted meanwhile
			}
			if err != nil {
				return false, err
			}
			info = describe(stat, name)
		}
		if len(w.page.Objects)+len(w.page.Dirs) == w.req.Max {
			w.page.More = true
			return true, nil
		}
		w.page.Next = name
		if isDir {
			w.page.Dirs = append(w.page.Dirs, name)
		} else {
			w.page.Objects = append(w.page.Objects, info)
		}
	}
	return false, nil
}

// wanted reports whether a file, or something below a directory, can be an entry of the page.
func (w *walk) wanted(name string) bool {
	if !strings.HasPrefix(name, w.req.Prefix) {
		return false
	}
	if name > w.req.After {
		return true
	}
	return strings.HasSuffix(name, "/") && !w.req.Delimited && strings.HasPrefix(w.req.After, name)
}

// filled reports whether there is any object below a directory.
func (l *Local) filled(ctx context.Context, dir string) (bool, error) {
	names, err := l.names(ctx, dir, func(string) bool { return true })
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, "/") {
			return true, nil
		}
		if filled, err := l.filled(ctx, name); filled || err != nil {
			return filled, err
		}
	}
	return false, nil
}

// readDirChunk is how many entries of a directory are held at once before they are sifted.
const readDirChunk = 1024

// names returns the wanted files and directories of a directory as keys in byte order; directories end in a slash,
// which is where the keys below them sort. A directory that does not exist is empty.
func (l *Local) names(ctx context.Context, dir string, wanted func(string) bool) ([]string, error) {
	f, err := os.Open(l.path(dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var names []string
	for {
		if err := Admitted(ctx); err != nil {
			return nil, err
		}
		entries, err := f.ReadDir(readDirChunk)
		for _, entry := range entries {
			name := dir + entry.Name()
			switch {
			case dir == "" && strings.HasPrefix(name, tempDir):
				continue
			case entry.IsDir():
				name += "/"
			case !entry.Type().IsRegular():
				continue
			}
			if wanted(name) {
				names = append(names, name)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOTDIR) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

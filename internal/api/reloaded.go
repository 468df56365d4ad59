package api

import (
	"os"
	"sync"
	"time"
)

// reloaded is what some files say, read again when one of them has changed. What cannot be read, being half written, gone or
// wrong, is not taken: what was read last stays in force, so that a slip of an editor locks nobody out.
//
// Asking looks at the files' times and sizes, a matter of microseconds, so there is nothing that polls, and a change holds from
// the next request or handshake on. It follows symbolic links, by which Kubernetes replaces mounted secrets.
type reloaded[T any] struct {
	paths []string
	read  func() (T, error)

	mu    sync.Mutex // guards the following
	value T
	seen  []stamp
	err   error // of the newest reading
}

// stamp is how a file looks from outside; the zero value is a file that is not there.
type stamp struct {
	modified time.Time
	size     int64
	file     os.FileInfo
}

func (s stamp) same(o stamp) bool {
	return s.modified.Equal(o.modified) && s.size == o.size && (s.file == nil) == (o.file == nil) && (s.file == nil || os.SameFile(s.file, o.file))
}

// load reads the files for the first time, when an error is the caller's.
func load[T any](read func() (T, error), paths ...string) (*reloaded[T], error) {
	r := &reloaded[T]{paths: paths, read: read}
	r.seen = r.stamps() // before the reading, so that a change during it is not missed
	var err error
	r.value, err = read()
	return r, err
}

func (r *reloaded[T]) stamps() []stamp {
	all := make([]stamp, len(r.paths))
	for i, path := range r.paths {
		if info, err := os.Stat(path); err == nil {
			all[i] = stamp{info.ModTime(), info.Size(), info}
		}
	}
	return all
}

// get is what the files say, and why that is not the newest they say, if it is not.
func (r *reloaded[T]) get() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.stamps()
	changed := false
	for i := range now {
		changed = changed || !now[i].same(r.seen[i])
	}
	if changed {
		r.seen = now
		var value T
		if value, r.err = r.read(); r.err == nil {
			r.value = value
		}
	}
	return r.value, r.err
}

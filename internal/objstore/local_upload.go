package objstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tidemark/internal/random"
)

// temp is a temporary file, locked while its writer lives.
type temp struct {
	file *os.File
	name string
}

// newTemp creates and locks a temporary file. A process that opens the root may take the file for abandoned between
// the creation and the lock; then another is made.
func (l *Local) newTemp(ctx context.Context) (*temp, error) {
	for {
		if err := Admitted(ctx); err != nil {
			return nil, err
		}
		name := filepath.Join(l.root, tempDir, random.ID(l.random))
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrNotExist) {
			if err := os.Mkdir(filepath.Join(l.root, tempDir), 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		t := &temp{file: f, name: name}
		locked, err := tryLock(f)
		if err != nil {
			t.remove()
			return nil, err
		}
		if locked && sameFile(f, name) {
			return t, nil
		}
		t.remove()
	}
}

// remove deletes the temporary name and closes the file; what it was linked to stays.
func (t *temp) remove() {
	_ = os.Remove(t.name)
	_ = t.file.Close()
}

// removeAbandoned deletes the temporary files of dead writers: those nobody holds a lock on.
func (l *Local) removeAbandoned() error {
	entries, err := os.ReadDir(filepath.Join(l.root, tempDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := filepath.Join(l.root, tempDir, entry.Name())
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its writer has finished meanwhile
		}
		if err != nil {
			return err
		}
		locked, err := tryLock(f)
		if err == nil && locked {
			err = os.Remove(name)
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// finish syncs a temporary file whose content is complete and dates it: now, but later than what it replaces.
func (l *Local) finish(t *temp, after time.Time) error {
	now := l.clock.Now()
	if !now.After(after) {
		now = after.Add(1)
	}
	if err := os.Chtimes(t.name, now, now); err != nil {
		return err
	}
	return t.file.Sync()
}

// link makes a complete temporary file visible under a key that does not exist.
func (l *Local) link(ctx context.Context, t *temp, key string) (Info, Outcome, error) {
	if err := l.finish(t, time.Time{}); err != nil {
		return Info{}, Refused, err
	}
	dir := path.Dir(key)
	if err := l.makeDirs(dir); err != nil {
		return Info{}, Refused, blockedDir(dir, err)
	}
	if err := Admitted(ctx); err != nil {
		return Info{}, Refused, err
	}
	err := os.Link(t.name, l.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		// Somebody removed a directory that was there before: make it again, once.
		l.forgetDirs()
		if err := l.makeDirs(dir); err != nil {
			return Info{}, Refused, blockedDir(dir, err)
		}
		err = os.Link(t.name, l.path(key))
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return Info{}, Refused, ErrExists
	case errors.Is(err, unix.EIO):
		return Info{}, Unknown, err
	case err != nil:
		return Info{}, Refused, blockedDir(dir, err)
	}
	return l.published(t, key)
}

// rename puts a complete temporary file in the place of the object at key, whose lock the caller holds.
func (l *Local) rename(ctx context.Context, t *temp, key string, after time.Time) (Info, Outcome, error) {
	if err := l.finish(t, after); err != nil {
		return Info{}, Refused, err
	}
	if err := Admitted(ctx); err != nil {
		return Info{}, Refused, err
	}
	if err := os.Rename(t.name, l.path(key)); err != nil {
		if errors.Is(err, unix.EIO) {
			return Info{}, Unknown, err
		}
		return Info{}, Refused, err
	}
	return l.published(t, key)
}

// published syncs the directory of an object that has just appeared. Until that has worked, a power failure may take
// the object away again.
func (l *Local) published(t *temp, key string) (Info, Outcome, error) {
	if err := syncDir(l.path(path.Dir(key))); err != nil {
		return Info{}, Unknown, err
	}
	info, err := describeFile(t.file, key)
	if err != nil {
		return Info{}, Unknown, err
	}
	return info, Applied, nil
}

func blockedDir(dir string, err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("an object stands in the way of the directory %q, which local disk needs: %w", dir, err)
	}
	return err
}

// uploadBuffer is how much of an upload is gathered before it is handed to the file system.
const uploadBuffer = 256 << 10

// localUpload writes one temporary file and links it on completion.
type localUpload struct {
	local *Local
	ctx   context.Context // of Create
	key   string
	temp  *temp
	out   *bufio.Writer
	ended bool
}

// Create implements [Store].
func (l *Local) Create(ctx context.Context, key string) (Upload, error) {
	if err := checkKey(OpCreate, key); err != nil {
		return nil, err
	}
	t, err := l.newTemp(ctx)
	if err != nil {
		return nil, failLocal(OpCreate, key, err)
	}
	return &localUpload{local: l, ctx: ctx, key: key, temp: t, out: bufio.NewWriterSize(t.file, uploadBuffer)}, nil
}

func (u *localUpload) Write(p []byte) (int, error) {
	if u.ended {
		return 0, fail(OpWrite, u.key, CodeInvalid, errUploadEnded)
	}
	if err := Admitted(u.ctx); err != nil {
		return 0, fail(OpWrite, u.key, CodeIO, err)
	}
	n, err := u.out.Write(p)
	if err != nil {
		return n, failLocal(OpWrite, u.key, err)
	}
	return n, nil
}

func (u *localUpload) Complete(ctx context.Context) (Info, error) {
	if u.ended {
		return Info{}, fail(OpComplete, u.key, CodeInvalid, errUploadEnded)
	}
	if err := Admitted(u.ctx); err != nil {
		return Info{}, fail(OpComplete, u.key, CodeIO, err)
	}
	if err := u.out.Flush(); err != nil {
		return Info{}, failLocal(OpComplete, u.key, err)
	}
	info, _, err := u.local.link(ctx, u.temp, u.key)
	if err != nil {
		return Info{}, fail(OpComplete, u.key, failLocal(OpComplete, u.key, err).Code, err)
	}
	u.Discard()
	return info, nil
}

func (u *localUpload) Abort(context.Context) error {
	u.Discard()
	return nil
}

// Discard removes the temporary file, which nobody but this process has ever seen.
func (u *localUpload) Discard() {
	if !u.ended {
		u.ended = true
		u.temp.remove()
	}
}

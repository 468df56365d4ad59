package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tidemark/internal/clock"
	"tidemark/internal/random"
)

// tempDir holds files that are being written, below the root. It is never listed and no key may lie in it.
const tempDir = ".tidemark-tmp"

// Local is a store in a directory of a local file system, good for any number of processes on one machine.
//
//   - A put writes and syncs a temporary file, links it under its name (which fails if the name exists) and syncs the
//     directory.
//   - A replace holds an advisory lock on the file it replaces, compares, and renames a synced temporary file over it.
//   - An object's ETag is its inode, size and modification time. A replace always moves the time forward.
//   - Temporary files are locked by the process that writes them, so a later opening removes exactly those whose
//     writer has died.
//
// Deletes are not synced: after a power failure a deleted object may be back. Directories are never removed.
type Local struct {
	url    string
	root   string // absolute
	clock  clock.Clock
	random random.Source

	mu      sync.Mutex          // guards durable
	durable map[string]struct{} // directories, relative, whose entry in their parent has been synced
}

// durableMax bounds the memory of directories known to be synced: about 10 MB. Forgetting costs a few syncs.
const durableMax = 1 << 16

// NewLocal opens an existing, writable directory. It leaves nothing new behind.
func NewLocal(dir string, c clock.Clock, r random.Source) (*Local, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, badRoot(dir, err)
	}
	l := &Local{url: dir, root: root, clock: c, random: r, durable: map[string]struct{}{}}
	if err := l.checkRoot(); err != nil {
		return nil, err
	}
	if err := l.removeAbandoned(); err != nil {
		return nil, badRoot(dir, fmt.Errorf("its unfinished files cannot be cleaned up: %w", err))
	}
	return l, nil
}

var _ Store = (*Local)(nil)

func badRoot(root string, err error) *Error {
	return &Error{Op: opOpen, Key: root, Code: CodeBadRoot, Err: err}
}

func (l *Local) checkRoot() error {
	stat, err := os.Stat(l.root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return badRoot(l.url, fmt.Errorf("the root directory does not exist; create it with: mkdir -p %s", l.root))
	case err != nil:
		return badRoot(l.url, err)
	case !stat.IsDir():
		return badRoot(l.url, errors.New("the root is a file, not a directory"))
	}
	name, err := networkMount(l.root)
	if err != nil {
		return badRoot(l.url, err)
	}
	if name != "" {
		return badRoot(l.url, fmt.Errorf("the root is on a network mount (%s), where links and locks do not exclude other machines; "+
			"use a directory on a local disk, or an object store", name))
	}
	f, err := os.CreateTemp(l.root, tempDir+"-writable-*")
	if err != nil {
		return badRoot(l.url, fmt.Errorf("the root directory is not writable: %w", errors.Unwrap(err)))
	}
	_ = f.Close()
	return os.Remove(f.Name())
}

// URL returns the directory as the user wrote it.
func (l *Local) URL() string { return l.url }

func (l *Local) path(key string) string { return filepath.Join(l.root, filepath.FromSlash(key)) }

// open opens an object for reading. The caller closes it.
func (l *Local) open(ctx context.Context, op, key string) (*os.File, Info, error) {
	if err := checkKey(op, key); err != nil {
		return nil, Info{}, err
	}
	if err := Admitted(ctx); err != nil {
		return nil, Info{}, fail(op, key, CodeIO, err)
	}
	f, err := os.Open(l.path(key))
	if err != nil {
		return nil, Info{}, failLocal(op, key, err)
	}
	info, err := describeFile(f, key)
	if err != nil {
		_ = f.Close()
		return nil, Info{}, failLocal(op, key, err)
	}
	return f, info, nil
}

func describeFile(f *os.File, key string) (Info, error) {
	stat, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	if !stat.Mode().IsRegular() {
		return Info{}, fs.ErrNotExist
	}
	return describe(stat, key), nil
}

func describe(stat fs.FileInfo, key string) Info {
	return Info{
		Key:      key,
		Size:     stat.Size(),
		ETag:     fmt.Sprintf("%x-%x-%x", inode(stat), stat.Size(), stat.ModTime().UnixNano()),
		Modified: stat.ModTime(),
	}
}

func inode(stat fs.FileInfo) uint64 {
	if s, ok := stat.Sys().(*syscall.Stat_t); ok {
		return s.Ino
	}
	return 0
}

// failLocal wraps an error of the file system, keeping only its cause: the path repeats the key.
func failLocal(op, key string, err error) *Error {
	code := CodeIO
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		err = ErrNotFound
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		code = CodeDenied
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		code = CodeNoSpace
	case errors.Is(err, unix.ENAMETOOLONG):
		code = CodeInvalid
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return fail(op, key, code, err)
}

// Get implements [Store].
func (l *Local) Get(ctx context.Context, key string) ([]byte, Info, error) {
	f, info, err := l.open(ctx, OpGet, key)
	if err != nil {
		return nil, Info{}, err
	}
	defer f.Close()
	body := make([]byte, info.Size)
	if _, err := io.ReadFull(f, body); err != nil {
		return nil, Info{}, failLocal(OpGet, key, err)
	}
	return body, info, nil
}

// GetRange implements [Store].
func (l *Local) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := checkRange(key, offset, length); err != nil {
		return nil, err
	}
	f, info, err := l.open(ctx, OpGetRange, key)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	offset = min(offset, info.Size)
	body := make([]byte, min(length, info.Size-offset))
	if _, err := f.ReadAt(body, offset); err != nil && len(body) > 0 {
		return nil, failLocal(OpGetRange, key, err)
	}
	return body, nil
}

// Head implements [Store].
func (l *Local) Head(ctx context.Context, key string) (Info, error) {
	f, info, err := l.open(ctx, OpHead, key)
	if err != nil {
		return Info{}, err
	}
	return info, f.Close()
}

// PutIfAbsent implements [Store].
func (l *Local) PutIfAbsent(ctx context.Context, key string, body []byte) Result {
	if err := checkKey(OpPutIfAbsent, key); err != nil {
		return Result{Outcome: Refused, Err: err}
	}
	t, err := l.newTemp(ctx)
	if err != nil {
		return Result{Outcome: Refused, Err: failLocal(OpPutIfAbsent, key, err)}
	}
	defer t.remove()
	if _, err := t.file.Write(body); err != nil {
		return Result{Outcome: Refused, Err: failLocal(OpPutIfAbsent, key, err)}
	}
	info, outcome, err := l.link(ctx, t, key)
	if err != nil {
		return Result{Outcome: outcome, Err: fail(OpPutIfAbsent, key, failLocal(OpPutIfAbsent, key, err).Code, err)}
	}
	return Result{Outcome: Applied, Info: info}
}

// ReplaceIfMatch implements [Store].
func (l *Local) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) Result {
	if err := checkKey(OpReplaceIfMatch, key); err != nil {
		return Result{Outcome: Refused, Err: err}
	}
	t, err := l.newTemp(ctx)
	if err != nil {
		return Result{Outcome: Refused, Err: failLocal(OpReplaceIfMatch, key, err)}
	}
	defer t.remove()
	if _, err := t.file.Write(body); err != nil {
		return Result{Outcome: Refused, Err: failLocal(OpReplaceIfMatch, key, err)}
	}
	current, info, err := l.lock(ctx, key)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return refused(OpReplaceIfMatch, key, CodeMismatch, ErrMismatch)
	}
	if err != nil {
		return Result{Outcome: Refused, Err: failLocal(OpReplaceIfMatch, key, err)}
	}
	defer current.Close()
	if info.ETag != etag {
		return refused(OpReplaceIfMatch, key, CodeMismatch, ErrMismatch)
	}
	info, outcome, err := l.rename(ctx, t, key, info.Modified)
	if err != nil {
		return Result{Outcome: outcome, Err: failLocal(OpReplaceIfMatch, key, err)}
	}
	return Result{Outcome: Applied, Info: info}
}

// Delete implements [Store].
func (l *Local) Delete(ctx context.Context, key string) error {
	if err := checkKey(OpDelete, key); err != nil {
		return err
	}
	current, _, err := l.lock(ctx, key)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return failLocal(OpDelete, key, err)
	}
	defer current.Close()
	if err := Admitted(ctx); err != nil {
		return failLocal(OpDelete, key, err)
	}
	if err := os.Remove(l.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failLocal(OpDelete, key, err)
	}
	return nil
}

// lockPoll is the longest wait between two looks at a lock that another replace of the same key holds for the time of
// two system calls.
const lockPoll = 2 * time.Millisecond

// lock opens the file at key and locks it against other replaces and deletes; closing it unlocks. A replace installs
// another file under the name, so a lock counts only if the name still leads to the locked file.
func (l *Local) lock(ctx context.Context, key string) (*os.File, Info, error) {
	for {
		if err := Admitted(ctx); err != nil {
			return nil, Info{}, err
		}
		f, err := os.Open(l.path(key))
		if err != nil {
			return nil, Info{}, err
		}
		locked, err := tryLock(f)
		if err != nil {
			_ = f.Close()
			return nil, Info{}, err
		}
		if locked {
			info, err := describeFile(f, key)
			if err == nil && sameFile(f, l.path(key)) {
				return f, info, nil
			}
			_ = f.Close()
			if err != nil {
				return nil, Info{}, err
			}
			continue
		}
		_ = f.Close()
		if err := l.clock.Sleep(ctx, random.Jitter(l.random, lockPoll)); err != nil {
			return nil, Info{}, err
		}
	}
}

func tryLock(f *os.File) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}

func sameFile(f *os.File, name string) bool {
	a, errA := f.Stat()
	b, errB := os.Lstat(name)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// makeDirs creates the directory of a key and syncs every new entry, so that an object in it survives a power failure.
func (l *Local) makeDirs(dir string) error {
	if dir == "." {
		return nil
	}
	l.mu.Lock()
	_, known := l.durable[dir]
	l.mu.Unlock()
	if known {
		return nil
	}
	parent := path.Dir(dir)
	if err := l.makeDirs(parent); err != nil {
		return err
	}
	if err := os.Mkdir(l.path(dir), 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := syncDir(l.path(parent)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.durable) >= durableMax {
		clear(l.durable)
	}
	l.durable[dir] = struct{}{}
	return nil
}

func (l *Local) forgetDirs() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.durable)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

package rootlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// lockPoll is how often a server that waits for a local root tries again.
const lockPoll = 250 * time.Millisecond

// ErrLocked: another process of this machine serves the root.
var ErrLocked = errors.New("another process of this machine serves it")

// FileLock is a lock on a local root. It ends with its process at the latest.
type FileLock struct{ file *os.File }

// Lock locks a local root, for this process alone or together with others that want it shared. It does not wait: a lock
// that others hold is ErrLocked, and the error names who holds the root by its record.
func Lock(ctx context.Context, s objstore.Store, dir string, exclusive bool) (*FileLock, error) {
	lock, err := lockFile(dir, exclusive)
	if errors.Is(err, ErrLocked) {
		if holder, _, _ := Read(ctx, s); holder != nil && holder.Kind != Released {
			err = fmt.Errorf("root held by %s: %w", holder.describe(), err)
		}
	}
	return lock, err
}

func lockFile(dir string, exclusive bool) (*FileLock, error) {
	path := filepath.Join(dir, "_tidemark", "lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, fmt.Errorf("cannot lock root %s: %w", dir, err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("cannot lock root %s: %w", dir, err)
	}
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	for {
		err = unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return &FileLock{file: file}, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("root %s is locked: %w (it holds %s); stop it first", dir, ErrLocked, path)
	default:
		err = fmt.Errorf("cannot lock root %s: %w; a root must be on a local file system", dir, err)
	}
	_ = file.Close()
	return nil, err
}

// Unlock gives the lock up.
func (l *FileLock) Unlock() { _ = l.file.Close() }

// runLocal is Run for a local root: the file lock says that no other process of this machine serves it, so a record that
// a standalone server left behind is nobody's.
func runLocal(ctx context.Context, o Options, serve func(context.Context, Claim) error) error {
	lock, err := lockDir(ctx, o)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	record, etag, err := claimLocal(ctx, o)
	if err != nil {
		return err
	}
	o.Log.Info("the root is ours, by a file lock and a record without a lease; no other machine may serve this directory",
		"root", o.Store.URL(), "id", record.ID)
	err = serve(ctx, Claim{ID: record.ID, Store: objstore.NewScope(o.Store, o.Clock)})
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	record.Nonce, record.Kind, record.Etcd = random.ID(o.Random), Released, nil
	if a := replace(releasing, o.Store, record, etag, o.retry()); a.Kind == Failed {
		o.Log.Warn("could not write that the root is free; the next server finds the file lock free all the same", "error", a.Err)
	}
	return err
}

// lockDir takes the file lock, waiting for it if told to.
func lockDir(ctx context.Context, o Options) (*FileLock, error) {
	for waited := false; ; waited = true {
		lock, err := Lock(ctx, o.Store, o.Dir, true)
		if !errors.Is(err, ErrLocked) || !o.Wait {
			return lock, err
		}
		if !waited {
			o.Log.Warn("waiting until the root is free", "cause", err)
		}
		if err := o.Clock.Sleep(ctx, lockPoll); err != nil {
			return nil, err
		}
	}
}

// claimLocal writes the record, under the file lock.
func claimLocal(ctx context.Context, o Options) (Record, string, error) {
	found, etag, err := Read(ctx, o.Store)
	if err != nil {
		return Record{}, "", err
	}
	if found != nil && (found.Kind == Cluster || found.LeaseMS != 0) {
		reason := "which has no lease and may run elsewhere"
		if found.LeaseMS != 0 {
			reason = "which has claimed an object store: the directory is a copy of one, or is mounted"
		}
		return Record{}, "", &HeldError{Root: o.Store.URL(), Record: *found, Reason: reason}
	}
	record := o.record(Standalone, random.ID(o.Random))
	a := replace(ctx, o.Store, record, etag, o.retry())
	if a.Kind != Done {
		return Record{}, "", fmt.Errorf("claiming root %s: %w", o.Store.URL(), a.Err)
	}
	return record, a.ETag, nil
}

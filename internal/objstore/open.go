package objstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/random"
)

// Options are what opening a root needs. Clock, Random and Log are required.
type Options struct {
	Clock  clock.Clock
	Random random.Source
	Log    hclog.Logger

	// CreateRoot makes the directory of a local root that does not exist. Only `tidemark dev` asks for it: elsewhere a
	// missing root is more likely a mistyped one.
	CreateRoot bool

	S3 S3Options // of s3:// roots
}

// Open opens a root: a directory (a path or file:///path), s3://bucket/prefix, or mem:// for a fresh store in memory. It
// creates nothing unless told to, and does not [Probe]. A root that is missing or cannot be used is an error that says
// so, with CodeBadRoot.
func Open(ctx context.Context, root string, o Options) (Store, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fail(opOpen, root, CodeCancelled, err)
	}
	scheme, rest, found := strings.Cut(root, "://")
	if !found {
		return openLocal(root, root, o)
	}
	switch scheme {
	case "file":
		u, err := url.Parse(root)
		if err != nil {
			return nil, badRoot(root, err)
		}
		if u.Host != "" && u.Host != "localhost" {
			return nil, badRoot(root, fmt.Errorf("%q is not this machine; write file:///%s%s for a local directory", u.Host, u.Host, u.Path))
		}
		return openLocal(root, u.Path, o)
	case "mem":
		if rest != "" {
			return nil, badRoot(root, errors.New("a root in memory has no name; write mem://"))
		}
		return NewMemory(o.Clock), nil
	case "s3":
		s, err := openS3(ctx, root, o)
		if err != nil {
			return nil, err // not a nil *S3 in a Store
		}
		return s, nil
	}
	return nil, badRoot(root, fmt.Errorf("unknown kind of root %q; use a directory, file:///directory, s3://bucket/prefix or mem://", scheme+"://"))
}

// LocalDir is the directory of a local root; false for roots elsewhere.
func LocalDir(root string) (dir string, ok bool) {
	scheme, _, found := strings.Cut(root, "://")
	if !found {
		return root, root != ""
	}
	u, err := url.Parse(root)
	if err != nil || scheme != "file" {
		return "", false
	}
	return u.Path, u.Path != ""
}

func openLocal(root, dir string, o Options) (Store, error) {
	if dir == "" {
		return nil, badRoot(root, errors.New("no directory is named"))
	}
	if o.CreateRoot {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, badRoot(root, fmt.Errorf("the root directory cannot be created: %w", err))
		}
	}
	l, err := NewLocal(dir, o.Clock, o.Random)
	if err != nil {
		return nil, err
	}
	l.url = root
	return l, nil
}

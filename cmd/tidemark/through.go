package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"strings"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/api"
	"tidemark/internal/apiclient"
	"tidemark/internal/control"
	"tidemark/internal/etcd"
	"tidemark/internal/observe"
	"tidemark/internal/process"
)

// masterFlags say which master a command goes through.
type masterFlags struct {
	Master    []string               `help:"URL of a master to go through, such as http://10.0.0.1:7078; may be given more than once. Those that etcd names if not given." env:"TIDEMARK_MASTER" placeholder:"URL,…"`
	TokenFile string                 `help:"File that holds the token for --master, and nothing else." env:"TIDEMARK_TOKEN_FILE" placeholder:"FILE"`
	MasterTLS masterCertificateFlags `embed:"" prefix:"master-" group:"For masters that serve HTTPS:"`
	Direct    bool                   `help:"Do not go through a master, but straight to etcd and storage." env:"TIDEMARK_DIRECT"`
}

// masterCertificateFlags are how a master is known, and what is shown to it.
type masterCertificateFlags struct {
	CA   string `name:"ca" help:"Authority of the masters' certificates (PEM); that of the system if not given." env:"TIDEMARK_MASTER_CA" placeholder:"FILE"`
	Cert string `help:"Certificate to show to masters (PEM)." env:"TIDEMARK_MASTER_CERT" placeholder:"FILE"`
	Key  string `help:"Key of that certificate (PEM)." env:"TIDEMARK_MASTER_KEY" placeholder:"FILE"`
}

// clusterFlags are those of everything that a master's API can do.
type clusterFlags struct {
	placeFlags
	masterFlags
}

// tokenBytesMax bounds a token file: a token and the end of its line.
const tokenBytesMax = 4096

// access is what a command wants of the API.
type access struct {
	acts         bool // it changes something, and does so without a master only if told to
	storageFirst bool // what it does outlives etcd, and goes on without
}

// api is the API of the first master that answers. If none does, or --direct says so, it is the same API in this process,
// over etcd and storage; for what changes something only by --direct. The caller calls done.
func (f clusterFlags) api(ctx context.Context, streams process.Streams, what access) (c *apiclient.Client, done func(), err error) {
	if f.Direct {
		return f.local(ctx, streams, what)
	}
	c, err = f.master(ctx)
	switch {
	case err == nil:
		return c, func() {}, nil
	case !errors.Is(err, apiclient.ErrNoMaster):
		return nil, nil, err
	case what.acts:
		return nil, nil, fmt.Errorf("%w; start a master, name one with --master, or give --direct to do it without", err)
	}
	var unknown *noEtcdError
	if errors.As(err, &unknown) && !what.storageFirst {
		return nil, nil, unknown.cause // there is nothing to read directly either
	}
	fmt.Fprintf(streams.Err, "tidemark: reading etcd and storage directly: %v\n", err)
	return f.local(ctx, streams, what)
}

// master finds a master that answers; apiclient.ErrNoMaster if none does.
func (f clusterFlags) master(ctx context.Context) (*apiclient.Client, error) {
	o := apiclient.Options{Masters: f.Master, By: whoami()}
	var err error
	if o.TLS, err = process.ClientTLS("master", f.MasterTLS.CA, f.MasterTLS.Cert, f.MasterTLS.Key); err != nil {
		return nil, err
	}
	switch {
	case len(f.Master) == 0 && f.TokenFile != "":
		return nil, process.Usagef("--token-file needs --master: a token is sent only to masters that are named")
	case f.TokenFile != "":
		if o.Token, err = readToken(f.TokenFile); err != nil {
			return nil, err
		}
	case len(f.Master) == 0:
		if o.Masters, err = f.masters(ctx); err != nil {
			return nil, fmt.Errorf("%w: none is known: %w", apiclient.ErrNoMaster, &noEtcdError{err})
		}
	}
	return apiclient.Find(ctx, o)
}

// noEtcdError: etcd could not be asked for masters.
type noEtcdError struct{ cause error }

func (e *noEtcdError) Error() string { return e.cause.Error() }

func (e *noEtcdError) Unwrap() error { return e.cause }

// masters are the URLs of the live masters, as etcd knows them.
func (f clusterFlags) masters(ctx context.Context) ([]string, error) {
	client, err := f.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var urls []string
	_, err = etcd.ReadPages(ctx, client, f.Keys().Masters(), func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			var record struct{ URL string }
			if json.Unmarshal(kv.Value, &record) == nil && record.URL != "" {
				urls = append(urls, record.URL)
			}
		}
		return nil
	})
	return urls, err
}

func readToken(path string) (string, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	token := strings.TrimSpace(string(body))
	if token == "" || len(body) > tokenBytesMax || strings.ContainsAny(token, " \t\n") {
		return "", fmt.Errorf("%s is to hold one token and nothing else, not lines NAME ROLE TOKEN", path)
	}
	return token, nil
}

// local is the API in this process.
func (f clusterFlags) local(ctx context.Context, streams process.Streams, what access) (*apiclient.Client, func(), error) {
	p, err := f.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	log := hclog.NewNullLogger()
	client, err := f.dial(ctx)
	switch {
	case err == nil:
	case !what.storageFirst:
		return nil, nil, err
	case !errors.Is(err, errNoEtcd):
		fmt.Fprintf(streams.Err, "tidemark: going on with storage alone: %v\n", err)
	}
	done := func() {}
	var see *observe.Observer
	if err == nil {
		done = func() { _ = client.Close() }
		if !what.acts && !what.storageFirst {
			see, err = observe.Look(ctx, observe.Config{Client: client, Keys: f.Keys(), Store: p.store, Clock: p.clock, Random: p.random, Log: log})
			if err != nil {
				done()
				return nil, nil, err
			}
		}
	}
	act := control.New(control.Deps{Client: client, Keys: f.Keys(), Store: p.store, Clock: p.clock, Random: p.random})
	return apiclient.Local(api.As(whoami(), api.NewV1(see, act).Handler())), done, nil
}

func whoami() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "tidemark"
}

// ask reads a path of the API.
func ask[T any](ctx context.Context, f clusterFlags, streams process.Streams, what access, path string) (T, error) {
	var v T
	c, done, err := f.api(ctx, streams, what)
	if err != nil {
		return v, err
	}
	defer done()
	err = c.Get(ctx, path, &v)
	return v, err
}

// askAll reads every page of a list.
func askAll[T any](ctx context.Context, f clusterFlags, streams process.Streams, path string, query url.Values) ([]T, error) {
	c, done, err := f.api(ctx, streams, access{})
	if err != nil {
		return nil, err
	}
	defer done()
	return apiclient.All[T](ctx, c, path, query)
}

// list is a list that comes in one piece.
type list[T any] struct {
	Items []T `json:"items"`
}

// ofTable is a path about a table.
func ofTable(name, rest string) string { return "/tables/" + url.PathEscape(name) + rest }

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/process"
	"tidemark/internal/random"
	"tidemark/internal/rootlock"
)

type rootCommand struct {
	Show   rootShow   `cmd:"" help:"Show who may serve the root, and when it last gave a sign of life."`
	Unlock rootUnlock `cmd:"" help:"Take the root from a holder that is stopped for good."`
}

type rootShow struct {
	process.RootFlags
	JSON bool `help:"Print JSON."`
}

// shownRoot is what `root show` says.
type shownRoot struct {
	Root    string        `json:"root"`
	Kind    rootlock.Kind `json:"kind"` // cluster, standalone, released; empty if the root was never claimed
	Cluster string        `json:"cluster,omitempty"`
	ID      string        `json:"id,omitempty"`
	Holder  string        `json:"holder,omitempty"`
	LeaseMS int64         `json:"lease_ms,omitempty"`
	Etcd    []string      `json:"etcd,omitempty"`
	Beat    *uint64       `json:"beat,omitempty"`    // number of the newest sign of life
	AgeMS   *int64        `json:"beat_ms,omitempty"` // its age by the store's clock
}

func (c *rootShow) Run(ctx context.Context, streams process.Streams) error {
	store, err := c.RootFlags.Open(ctx, hclog.NewNullLogger(), clock.System(), random.New(), false)
	if err != nil {
		return err
	}
	record, _, err := rootlock.Read(ctx, store)
	if err != nil {
		return err
	}
	shown := shownRoot{Root: c.Root}
	if record != nil {
		shown.Kind, shown.Cluster, shown.ID, shown.Holder, shown.LeaseMS, shown.Etcd =
			record.Kind, record.Cluster, record.ID, record.Holder, record.LeaseMS, record.Etcd
		if shown.Beat, shown.AgeMS, err = lastBeat(ctx, store, record.ID); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(streams.Out, shown)
	}
	fmt.Fprintln(streams.Out, shown)
	return nil
}

// lastBeat is the newest sign of life of a lock and its age, both nil if there is none.
func lastBeat(ctx context.Context, s objstore.Store, id string) (*uint64, *int64, error) {
	beats, err := rootlock.Beats(ctx, s, id)
	if err != nil || len(beats) == 0 {
		return nil, nil, err
	}
	newest := beats[len(beats)-1]
	page, err := s.List(ctx, objstore.ListRequest{Prefix: rootlock.BeatKey(id, newest), Max: 1})
	if err != nil || len(page.Objects) == 0 || page.Date.IsZero() {
		return &newest, nil, err
	}
	age := page.Date.Sub(page.Objects[0].Modified).Milliseconds()
	return &newest, &age, nil
}

// String is the root in words.
func (r shownRoot) String() string {
	life := "no sign of life"
	if r.Beat != nil {
		life = fmt.Sprintf("sign of life number %d", *r.Beat)
		if r.AgeMS != nil {
			life += fmt.Sprintf(", %v ago", (time.Duration(*r.AgeMS) * time.Millisecond).Round(time.Second))
		}
	}
	switch {
	case r.Kind == "":
		return fmt.Sprintf("root %s is free: nobody has claimed it", r.Root)
	case r.Kind == rootlock.Released:
		return fmt.Sprintf("root %s is free: it was given back or unlocked (last id %s)", r.Root, r.ID)
	case r.Kind == rootlock.Cluster:
		return fmt.Sprintf("root %s is held by cluster %q, id %s, without a lease; %s", r.Root, r.Cluster, r.ID, life)
	case r.LeaseMS == 0:
		return fmt.Sprintf("root %s is held by standalone server %s, id %s, by a file lock of its machine", r.Root, r.Holder, r.ID)
	}
	return fmt.Sprintf("root %s is held by standalone server %s, id %s, with a lease of %v; %s",
		r.Root, r.Holder, r.ID, time.Duration(r.LeaseMS)*time.Millisecond, life)
}

type rootUnlock struct {
	process.RootFlags
	ID string `name:"id" help:"Exact id of the lock, as root show and refusals print it." required:"" placeholder:"ID"`
}

// Help says more than one line about the command.
func (c *rootUnlock) Help() string {
	return `For a holder that is stopped for good and cannot give its root back: a cluster that is gone, or a server whose lease you do
not want to wait for. A holder that lives all the same stops: a standalone server before its next sign of life, masters
within 30 s. Rows are safe either way; what two deployments waste is work.

The record is replaced only if it still is the one with this id. There is no other unlock.`
}

func (c *rootUnlock) Run(ctx context.Context, streams process.Streams) error {
	system, source := clock.System(), random.New()
	store, err := c.RootFlags.Open(ctx, hclog.NewNullLogger(), system, source, false)
	if err != nil {
		return err
	}
	dir, _ := objstore.LocalDir(c.Root)
	was, err := rootlock.Unlock(ctx, rootlock.UnlockOptions{
		Store: store, Clock: system, Random: source, Holder: process.DefaultID("unlock"), Dir: dir,
	}, c.ID)
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "root %s is free; it was held by %s %q, id %s\n", c.Root, was.Kind, was.Cluster, was.ID)
	return nil
}

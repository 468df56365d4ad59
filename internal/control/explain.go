package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/etcd"
	"tidemark/internal/master"
	"tidemark/internal/ownership"
	"tidemark/internal/scan"
	"tidemark/internal/schedule"
)

// Explanation says for each shard of a table why it is or is not being merged now, and who decides and who would do it.
type Explanation struct {
	schedule.Explanation
	Slot      int      `json:"slot"`
	Owner     string   `json:"owner,omitempty"`    // master that owns the slot; empty: nobody, and nothing is queued
	Executors int      `json:"executors"`          // that would claim a unit
	Warnings  []string `json:"warnings,omitempty"` // what stands in the way besides
}

// Explain answers from etcd and storage, with the functions by which the table's owner decides, and changes nothing.
func (c *Control) Explain(ctx context.Context, name string) (Explanation, error) {
	t, err := c.load(ctx, name)
	if err != nil {
		return Explanation{}, err
	}
	cluster, err := c.cluster(ctx)
	if err != nil {
		return Explanation{}, err
	}
	scanner := scan.NewScanner(scan.Deps{Store: c.d.Store, Clock: c.d.Clock, Random: c.d.Random, Log: c.d.Log})
	in, err := master.Look(ctx, c.d.Client, c.d.Keys, cluster.Slots, scanner, name, c.nowMS())
	if errors.Is(err, master.ErrNotSeen) {
		return Explanation{}, refuse(CodeNotSeen, "%w; `tidemark masters` shows whether one is running", err)
	}
	if err != nil {
		return Explanation{}, err
	}
	x := Explanation{Explanation: schedule.Explain(in), Slot: etcd.SlotOf(name, cluster.Slots)}
	if err := t.Mergeable(); err != nil {
		x.Warnings = append(x.Warnings, fmt.Sprintf("Nothing of this table is queued: %v", err))
	}
	values, err := c.Policy(ctx, name)
	if err != nil {
		return Explanation{}, err
	}
	for _, v := range values {
		if v.Problem != "" {
			x.Warnings = append(x.Warnings, fmt.Sprintf("%s; %s is in force instead.", v.Problem, v.Value))
		}
	}
	return x, c.whoServes(ctx, &x)
}

// whoServes fills in who decides about the table and how many would work on it.
func (c *Control) whoServes(ctx context.Context, x *Explanation) error {
	got, err := c.d.Client.Get(ctx, c.d.Keys.Slot(x.Slot))
	if err != nil {
		return fmt.Errorf("reading who owns slot %d: %w", x.Slot, err)
	}
	for _, kv := range got.Kvs {
		var owner ownership.SlotToken
		if json.Unmarshal(kv.Value, &owner) == nil {
			x.Owner = owner.Owner
		}
	}
	live := 0
	_, err = etcd.ReadPages(ctx, c.d.Client, c.d.Keys.Executors(), func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			var e struct{ Draining bool }
			if json.Unmarshal(kv.Value, &e) != nil {
				continue
			}
			live++
			if !e.Draining {
				x.Executors++
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the executors: %w", err)
	}
	if x.Owner == "" {
		x.Warnings = append(x.Warnings, fmt.Sprintf("No master owns slot %d, so nothing new is queued; start a master, or wait a lease's time if one has just died.", x.Slot))
	}
	switch {
	case live == 0:
		x.Warnings = append(x.Warnings, "No executor is running, so nothing in the ready queue is claimed.")
	case x.Executors == 0:
		x.Warnings = append(x.Warnings, "Every executor is draining, so nothing in the ready queue is claimed; `tidemark undrain` one, or start another.")
	}
	return nil
}

package master

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/scan"
	"tidemark/internal/schedule"
)

// ErrNotSeen: no master has scanned the table yet, so nothing is decided about it.
var ErrNotSeen = errors.New("no master has seen the table yet")

// Look reads one table from etcd and storage as its owner would who takes it over now, and changes nothing. What only an
// owner's memory holds is as after a takeover: no merges in a row, and maintenance that is due is due since now.
//
// scanner may be nil; then what a scan would find is left out: whether merged marks went back or are not trimmed, and what
// about the table itself forbids merging.
func Look(ctx context.Context, kv clientv3.KV, keys etcd.Keys, slots int, scanner *scan.Scanner, table string, nowMS int64) (schedule.Input, error) {
	b := newBook(keys, slots)
	e := b.entry(table)
	for _, prefix := range []string{
		keys.DefaultPolicy(), keys.TurnsOfTable(table), keys.OutcomesOfTable(table), keys.ReadyAll(),
	} {
		if err := readInto(ctx, kv, b, prefix, nowMS); err != nil {
			return schedule.Input{}, err
		}
	}
	for _, key := range []string{keys.Requests(e.slot, table), keys.Table(e.slot, table)} {
		got, err := kv.Get(ctx, key)
		if err != nil {
			return schedule.Input{}, fmt.Errorf("reading %s: %w", key, err)
		}
		for _, kv := range got.Kvs {
			b.put(key, kv.Value, kv.ModRevision, nowMS, false)
		}
	}
	if e.record == nil {
		return schedule.Input{}, fmt.Errorf("table %s: %w; if it was just created, try again in a few seconds", table, ErrNotSeen)
	}
	known, err := readDemand(ctx, kv, keys, e, nowMS)
	if err != nil {
		return schedule.Input{}, err
	}
	if scanner != nil {
		report, err := scanner.Scan(ctx, table, func(tableID, shard string) uint64 {
			if r := known[shard]; r.TableID == tableID && r.Merged != nil {
				return r.Merged.Gen
			}
			return 0
		})
		if err != nil {
			return schedule.Input{}, err
		}
		e.halted = report.Table.Mergeable()
		e.noteReport(report)
	}
	return e.input(nowMS), nil
}

// readInto notes every key below a prefix.
func readInto(ctx context.Context, kv clientv3.KV, b *book, prefix string, nowMS int64) error {
	_, err := etcd.ReadPages(ctx, kv, prefix, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			b.put(string(kv.Key), kv.Value, kv.ModRevision, nowMS, false)
		}
		return nil
	})
	return err
}

// readDemand gives an entry the demand records of its table. Of one that cannot be read nothing is known, as for an owner.
func readDemand(ctx context.Context, kv clientv3.KV, keys etcd.Keys, e *entry, nowMS int64) (map[string]demand.Record, error) {
	known := map[string]demand.Record{}
	e.beginDemand()
	_, err := etcd.ReadPages(ctx, kv, keys.DemandOfTable(e.slot, e.name), func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			_, _, shard, err := keys.ParseDemand(string(kv.Key))
			if err != nil {
				continue
			}
			s := demand.Shard{Name: shard, ModRevision: kv.ModRevision}
			s.Record, s.Err = demand.Parse(kv.Value)
			known[shard] = s.Record
			e.addDemand(s, nowMS)
		}
		return nil
	})
	return known, err
}

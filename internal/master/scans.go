package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/deltalog"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/internal/scan"
	"tidemark/internal/schedule"
	"tidemark/internal/table"
	"tidemark/internal/turnset"
)

const (
	// scansMax bounds the scans under way. Each has at most a handful of requests in flight.
	scansMax = 8
	// A scan that is wanted soon is made at once, the next one a second later, doubling to a minute while scans do not
	// bring what is wanted: a shard whose manifest cannot be read must not be read all the time.
	hurryMin, hurryMax = time.Second, time.Minute
	// failedMin is how soon a scan that failed is made again, doubling to the interval of a busy table.
	failedMin, failedMax = 2 * time.Second, 300 * time.Second
	// scanTick bounds how late a scan may begin; looking for one that is due visits every table.
	scanTick = 500 * time.Millisecond
	// firstScanSpread is over how long a new owner spreads the first scans of tables whose records it has taken over and of
	// which nobody has asked for anything.
	firstScanSpread = 300 * time.Second
)

// scanLoop begins the scans that are due until ctx is done, and waits for those under way.
func (m *Master) scanLoop(ctx context.Context) error {
	var scans errgroup.Group
	scans.SetLimit(scansMax)
	defer func() { _ = scans.Wait() }() // no scan returns an error
	for {
		m.beginScans(ctx, &scans)
		if err := m.waitFor(ctx, m.wakeScans, scanTick); err != nil {
			return nil
		}
	}
}

func (m *Master) beginScans(ctx context.Context, scans *errgroup.Group) {
	owned := m.ownedSlots()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mayDecide() {
		return
	}
	now := m.config.Clock.Mono()
	m.scansWait = false
	for _, e := range m.book.tables {
		token, mine := owned[e.slot]
		if !mine {
			m.leave(e)
			continue
		}
		// An execution may have ended after its table was removed, even under an owner before.
		e.wanted = e.wanted || e.record == nil && !e.mine && e.hasOutcomes()
		if e.record == nil && !e.wanted && len(e.shards) == 0 {
			continue
		}
		if !e.mine {
			e.mine = true
			if e.scanAt == 0 && e.record != nil && e.request == nil {
				e.scanAt = now + random.Jitter(m.config.Random, firstScanSpread)
			}
		}
		if e.scanning || e.scanAt > now {
			continue
		}
		e.scanning = true
		if !scans.TryGo(func() error { m.scan(ctx, e, token); return nil }) {
			e.scanning = false
			m.scansWait = true
			return
		}
	}
}

// leave drops what only an owner needs. mu is held.
func (m *Master) leave(e *entry) {
	if e.mine || len(e.shards) > 0 {
		m.dropDesk(e)
	}
}

// dropDesk drops what only an owner needs, whoever that is. mu is held.
func (m *Master) dropDesk(e *entry) {
	e.desk = desk{policy: e.policy, policyErr: e.policyErr, wanted: e.wanted, found: e.found, busy: e.busy, scanning: e.scanning}
	m.book.setRecord(e, e.record)
	m.scanner.Forget(e.name)
}

// scanSoon asks for a scan before its time. mu is held.
func (m *Master) scanSoon(e *entry) {
	wait := time.Duration(0)
	if e.hurries > 0 {
		wait = min(hurryMin<<min(e.hurries-1, 10), hurryMax)
	}
	if at := max(e.scannedAt+wait, 1); at < e.scanAt || e.scanAt == 0 {
		e.scanAt = at
	}
	wake(m.wakeScans)
}

// scan scans one table and carries out what follows: the table's record, its demand, and what may go.
func (m *Master) scan(ctx context.Context, e *entry, token ownership.SlotToken) {
	before, complete := m.demandOf(e)
	if !complete {
		m.mu.Lock()
		e.scanning = false // the mirror's completion wakes the scans
		m.mu.Unlock()
		return
	}
	m.mu.Lock()
	var answers int64
	var untold map[string]demand.Event
	if e.request != nil {
		answers = e.request.revision
	}
	m.mu.Unlock()
	report, err := m.scanner.Scan(ctx, e.name, func(tableID, shard string) uint64 {
		if r := before[shard].Record; r.TableID == tableID && r.Merged != nil {
			return r.Merged.Gen
		}
		return 0
	})
	switch {
	case err == nil:
		if err = m.putRecord(ctx, e, token, report); err == nil {
			untold, complete = m.scanner.Publish(ctx, m.detached, report, func(shard string) demand.Record { return before[shard].Record })
			err = errors.Join(m.deleteDemand(ctx, e, token, over(report, before)), m.recordRegressions(ctx, e, token, report, before))
		}
	case errors.Is(err, table.ErrDropped), errors.Is(err, table.ErrUnknownTable):
		err = m.removeTable(ctx, e, token, before)
	case errors.Is(err, table.ErrNotAdopted):
		err = nil
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("a scan failed; it is tried again", "table", e.name, "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endScan(e, report, complete, err)
	if err == nil && e.mine {
		e.answered, e.untold = max(e.answered, answers), untold
		e.demandChanged = true // the cache may know more than the planner, and a request is answered by it
		if e.request != nil && e.request.revision > e.answered {
			e.scanAt = 0 // it came while the scan was under way
			wake(m.wakeScans)
		}
	}
	wake(m.wakePlanner)
	if m.scansWait {
		wake(m.wakeScans) // there is room for another
	}
}

// endScan notes a report and sets the time of the next scan. mu is held.
func (m *Master) endScan(e *entry, r scan.Report, published bool, err error) {
	now := m.config.Clock.Mono()
	m.counts.scans++
	e.scanning, e.scannedAt, e.scanErr = false, now, err
	var settings *table.SettingsError
	switch {
	case errors.As(err, &settings):
		e.halted = err
	case r.Table != nil:
		e.halted = r.Table.Mergeable()
		e.noteReport(r)
		e.scanErr = errors.Join(append([]error{err}, r.Broken...)...)
	}
	var wait time.Duration
	switch {
	case err != nil:
		m.counts.scanFailures++
		wait = min(failedMin<<min(e.failures, 10), failedMax)
		e.failures++
	case !published:
		wait, e.failures = hurryMin, 0
	default:
		e.interval, e.failures = scan.NextInterval(e.interval, r.Changed), 0
		wait = e.interval
	}
	e.scanAt = now + wait
	if r.Table == nil && err == nil {
		e.wanted, e.interval = false, 0 // gone, or somebody else's: it comes back by demand or by discovery
	}
	e.hurries++
	if !e.mine {
		m.dropDesk(e) // the slot went while the scan was under way
	}
	m.book.touch(e)
	m.book.forgetIfEmpty(e)
}

// recordOf is the table record that a report makes.
func recordOf(r scan.Report, cleanedMS int64) TableRecord {
	t := r.Table
	record := TableRecord{
		V: 1, TableID: t.ID, Incarnation: t.Incarnation, Mode: string(t.Mode), Buckets: t.Buckets, State: t.State, Policy: t.Policy,
		Checkpoint: t.Snapshot.Checkpoint, LogVersion: t.Snapshot.Version, CleanedMS: cleanedMS,
	}
	if len(record.Policy) == 0 {
		record.Policy = nil
	}
	if p, err := deltalog.ParseProperties(t.Snapshot.Metadata.Configuration); err == nil {
		record.CheckpointEvery = p.CheckpointInterval
	}
	return record
}

// putRecord keeps P/tables in step with the table.
func (m *Master) putRecord(ctx context.Context, e *entry, token ownership.SlotToken, r scan.Report) error {
	m.mu.Lock()
	if e.cleanedMS == 0 {
		e.cleanedMS = r.AtMS
	}
	record := recordOf(r, e.cleanedMS)
	same := e.record != nil && reflect.DeepEqual(*e.record, record)
	m.mu.Unlock()
	if same {
		return nil
	}
	value, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("writing the record of table %s: %w", e.name, err)
	}
	if err := m.write(ctx, token, clientv3.OpPut(m.keys.Table(e.slot, e.name), string(value))); err != nil {
		return fmt.Errorf("writing the record of table %s: %w", e.name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book.setRecord(e, &record)
	return nil
}

// write writes under the slot's token.
func (m *Master) write(ctx context.Context, token ownership.SlotToken, ops ...clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := etcd.WriteChunks(ctx, m.config.Client, []clientv3.Cmp{token.Compare(m.keys)}, ops)
	return err
}

// over picks the demand records that may go: of shards that are over, and of shards of a former life that the present
// one does not have.
func over(r scan.Report, before map[string]demand.Shard) map[string]demand.Shard {
	gone := map[string]demand.Shard{}
	there := map[string]bool{}
	for _, s := range r.Shards {
		there[s.Name] = true
		if d, ok := before[s.Name]; ok && s.Over() {
			gone[s.Name] = d
		}
	}
	for name, d := range before {
		if !there[name] && d.Err == nil && d.Record.Incarnation < r.Table.Incarnation {
			gone[name] = d
		}
	}
	return gone
}

// deleteDemand deletes records that still are as they were seen before the scan.
func (m *Master) deleteDemand(ctx context.Context, e *entry, token ownership.SlotToken, records map[string]demand.Shard) error {
	ctx, cancel := context.WithTimeout(ctx, demand.DetachedTimeout)
	defer cancel()
	for shard, d := range records {
		key := m.keys.Demand(e.slot, e.name, shard)
		if _, err := etcd.Commit(ctx, m.config.Client, etcd.Txn{
			If:   []clientv3.Cmp{token.Compare(m.keys), etcd.Unchanged(key, d.ModRevision)},
			Then: []clientv3.Op{clientv3.OpDelete(key)},
		}); err != nil {
			return fmt.Errorf("deleting the demand of shard %s: %w", shard, err)
		}
	}
	return nil
}

// removeTable removes what etcd holds of a table that is dropped or gone: demand as it was before the scan, ready units,
// outcomes, a request and the record.
func (m *Master) removeTable(ctx context.Context, e *entry, token ownership.SlotToken, before map[string]demand.Shard) error {
	m.scanner.Forget(e.name)
	if err := m.deleteDemand(ctx, e, token, before); err != nil {
		return err
	}
	m.mu.Lock()
	ops := []clientv3.Op{
		clientv3.OpDelete(m.keys.Table(e.slot, e.name)), clientv3.OpDelete(m.keys.Requests(e.slot, e.name)),
		clientv3.OpDelete(m.keys.OutcomesOfTable(e.name), clientv3.WithPrefix()),
	}
	for key := range maps.Keys(e.ready) {
		ops = append(ops, clientv3.OpDelete(key))
	}
	nothing := e.record == nil && e.request == nil && len(e.ready) == 0 && !e.hasOutcomes()
	m.mu.Unlock()
	if nothing {
		return nil
	}
	if err := m.write(ctx, token, ops...); err != nil {
		return fmt.Errorf("removing table %s from etcd: %w", e.name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.book.setRecord(e, nil)
	return nil
}

// recordRegressions leaves a failure for every shard whose mark went back, so that executors and later owners know of it
// too. It is probed hourly like any failure of its class, and cleared when the mark passes again.
func (m *Master) recordRegressions(ctx context.Context, e *entry, token ownership.SlotToken, r scan.Report, before map[string]demand.Shard) error {
	for _, s := range r.Shards {
		if !s.Regressed {
			continue
		}
		n, least := etcd.GroupOf(s.Name), s.Trimmed
		if d := before[s.Name].Record; d.Merged != nil {
			least = max(least, d.Merged.Gen)
		}
		m.mu.Lock()
		last := e.outcomes[n]
		m.mu.Unlock()
		if last.record != nil {
			if f, ok := last.record.Shards[s.Name]; ok && f.Code == string(schedule.CodeRegressed) {
				continue
			}
		}
		run := schedule.Run{
			Execution: "scan", Incarnation: r.Table.Incarnation, Kind: schedule.KindMerge, EndedMS: m.nowMS(), More: true,
			Failures: []schedule.ShardFailure{{Shard: s.Name, Failure: schedule.Failure{
				Code: string(schedule.CodeRegressed), Class: schedule.Data, Generation: least + 1,
				Message: fmt.Sprintf("the table's log says that generation %d is the last one merged, and more had been merged before; "+
					"somebody expired transactions or replaced the log", s.Event.Merged.Gen),
			}}},
		}
		if err := m.putOutcome(ctx, e, token, n, last, schedule.Next(last.record, run)); err != nil {
			return err
		}
		m.log.Error("a merged mark went back; the shard is not merged any more until a person has looked",
			"table", e.name, "shard", s.Name, "mark", s.Event.Merged.Gen, "least", least)
	}
	return nil
}

// putOutcome leaves an outcome record in the place of the one that was seen, unless there is a newer one or the turn is
// held.
func (m *Master) putOutcome(ctx context.Context, e *entry, token ownership.SlotToken, n int, last outcome, next schedule.Outcome) error {
	value, err := next.Marshal()
	if err != nil {
		return fmt.Errorf("writing outcome %s of table %s: %w", turnset.Name(n), e.name, err)
	}
	key := m.keys.Outcome(e.name, n)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = etcd.Commit(ctx, m.config.Client, etcd.Txn{
		If:   []clientv3.Cmp{token.Compare(m.keys), etcd.Unchanged(key, last.revision), etcd.Absent(m.keys.Turn(e.name, n))},
		Then: []clientv3.Op{clientv3.OpPut(key, string(value))},
	})
	if err != nil {
		return fmt.Errorf("writing outcome %s of table %s: %w", turnset.Name(n), e.name, err)
	}
	return nil
}

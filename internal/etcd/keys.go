package etcd

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"tidemark/internal/turnset"
)

const (
	// DefaultSlots is the number of slots of a new cluster.
	DefaultSlots = 64
	// DefaultCluster is the cluster's name unless one is given.
	DefaultCluster = "default"
)

// SlotOf is the slot that a table belongs to, in a cluster of so many slots.
func SlotOf(table string, slots int) int { return int(xxh3.HashString(table) % uint64(slots)) }

// GroupOf is the group of a table that a shard belongs to, 0 to 15.
func GroupOf(shard string) int { return int(xxh3.HashString(shard) % Groups) }

// Keys names every key of one cluster. Names of tables, shards, masters and executors are path-escaped, so each is one
// segment of a key whatever it contains.
type Keys struct {
	Prefix string // without a trailing slash
}

// KeysOf are the keys of a cluster by its name.
func KeysOf(cluster string) Keys { return Keys{Prefix: "/tidemark/" + url.PathEscape(cluster)} }

// Cluster holds name, id, root and number of slots of the cluster.
func (k Keys) Cluster() string { return k.Prefix + "/cluster" }

// Masters is the prefix of all masters.
func (k Keys) Masters() string { return k.of("masters") }

// Master is leased: a master's address, version and start.
func (k Keys) Master(master string) string { return k.of("masters") + url.PathEscape(master) }

// Slots is the prefix of all owned slots.
func (k Keys) Slots() string { return k.of("slots") }

// Slot is leased: the owner of a slot with its token and epoch.
func (k Keys) Slot(slot int) string { return k.of("slots") + strconv.Itoa(slot) }

// SlotEpochs is the prefix of the durable counters of all slots.
func (k Keys) SlotEpochs() string { return k.of("slot-epochs") }

// SlotEpoch is the durable counter of a slot's owners.
func (k Keys) SlotEpoch(slot int) string { return k.of("slot-epochs") + strconv.Itoa(slot) }

// Tables is the prefix of the table records of a slot.
func (k Keys) Tables(slot int) string { return k.of("tables", strconv.Itoa(slot)) }

// Table is a table's record: id, incarnation, mode, and its state and policy as copied from its properties.
func (k Keys) Table(slot int, table string) string { return k.Tables(slot) + url.PathEscape(table) }

// DefaultPolicy is the copy of the default policy.
func (k Keys) DefaultPolicy() string { return k.of("policies") + "_default" }

// DemandAll is the prefix of all demand records.
func (k Keys) DemandAll() string { return k.of("demand") }

// DemandOfSlot is the prefix of the demand records of a slot.
func (k Keys) DemandOfSlot(slot int) string { return k.of("demand", strconv.Itoa(slot)) }

// DemandOfTable is the prefix of the demand records of a table.
func (k Keys) DemandOfTable(slot int, table string) string {
	return k.of("demand", strconv.Itoa(slot), url.PathEscape(table))
}

// Demand is the demand record of a shard.
func (k Keys) Demand(slot int, table, shard string) string {
	return k.DemandOfTable(slot, table) + url.PathEscape(shard)
}

// ReadyAll is the prefix of the ready queue; byte order below it is the order of service.
func (k Keys) ReadyAll() string { return k.of("ready") }

// ReadyClass is the prefix of one class of the ready queue.
func (k Keys) ReadyClass(class int) string { return k.of("ready", strconv.Itoa(class)) }

// Ready is one due unit.
func (k Keys) Ready(u ReadyKey) string {
	return k.ReadyClass(u.Class) + u.Order + "/" + url.PathEscape(u.Table) + "/" + u.Turns.String()
}

// TurnsAll is the prefix of all held turns.
func (k Keys) TurnsAll() string { return k.of("turns") }

// TurnsOfTable is the prefix of the held turns of a table.
func (k Keys) TurnsOfTable(table string) string { return k.of("turns", url.PathEscape(table)) }

// Turn is leased: an executor's exclusive right to a group of a table (0 to 15) or to its log (LogTurn).
func (k Keys) Turn(table string, turn int) string { return k.TurnsOfTable(table) + turnset.Name(turn) }

// ProgressAll is the prefix of the progress of all executions.
func (k Keys) ProgressAll() string { return k.of("progress") }

// Progress is leased: an execution's completed-work sequence, stage, rows and bytes.
func (k Keys) Progress(execution string) string { return k.of("progress") + url.PathEscape(execution) }

// OutcomesAll is the prefix of all outcome records.
func (k Keys) OutcomesAll() string { return k.of("outcomes") }

// OutcomesOfTable is the prefix of the outcome records of a table.
func (k Keys) OutcomesOfTable(table string) string { return k.of("outcomes", url.PathEscape(table)) }

// Outcome is the last outcome of a group of a table (0 to 15) or of its log (LogTurn).
func (k Keys) Outcome(table string, turn int) string {
	return k.OutcomesOfTable(table) + turnset.Name(turn)
}

// Executors is the prefix of all executors.
func (k Keys) Executors() string { return k.of("executors") }

// Executor is leased: an executor's slots, memory, version, address and whether it drains.
func (k Keys) Executor(executor string) string { return k.of("executors") + url.PathEscape(executor) }

// Drains is the prefix of all requests to drain an executor.
func (k Keys) Drains() string { return k.of("drains") }

// Drain is durable: a request that an executor claims nothing more. It outlives the executor, and holds for the next one
// of the same name, until it is taken away.
func (k Keys) Drain(executor string) string { return k.of("drains") + url.PathEscape(executor) }

// RequestsOfSlot is the prefix of the manual requests of a slot.
func (k Keys) RequestsOfSlot(slot int) string { return k.of("requests", strconv.Itoa(slot)) }

// Requests is a manual request to merge a table.
func (k Keys) Requests(slot int, table string) string {
	return k.RequestsOfSlot(slot) + url.PathEscape(table)
}

// of is the prefix made of already escaped segments, with a trailing slash.
func (k Keys) of(segments ...string) string {
	return k.Prefix + "/" + strings.Join(segments, "/") + "/"
}

// ReadyKey is what the key of a due unit says: its place in the order of service and the turns it needs.
type ReadyKey struct {
	Class int    // 0 to 9, lower first
	Order string // place within the class, lower first; one non-empty segment without a slash
	Table string
	Turns TurnSet
}

// ErrKey: a key is not one that Tidemark writes there. Its owner is somebody else, or a newer version.
var ErrKey = errors.New("not a key of this layout")

// ParseMaster gives back the name of a master.
func (k Keys) ParseMaster(key string) (string, error) { return k.parseName(key, "masters") }

// ParseExecutor gives back the name of an executor.
func (k Keys) ParseExecutor(key string) (string, error) { return k.parseName(key, "executors") }

// ParseDrain gives back the name of an executor that is to drain.
func (k Keys) ParseDrain(key string) (string, error) { return k.parseName(key, "drains") }

// ParseProgress gives back the id of an execution.
func (k Keys) ParseProgress(key string) (string, error) { return k.parseName(key, "progress") }

// ParseSlot gives back the number of an owned slot.
func (k Keys) ParseSlot(key string) (int, error) { return k.parseOnlyNumber(key, "slots") }

// ParseSlotEpoch gives back the slot of a durable counter.
func (k Keys) ParseSlotEpoch(key string) (int, error) { return k.parseOnlyNumber(key, "slot-epochs") }

func (k Keys) parseOnlyNumber(key, kind string) (int, error) {
	parts, err := k.split(key, kind, 1)
	if err != nil {
		return 0, err
	}
	return parseNumber(key, parts[0])
}

// ParseTable gives back slot and name of a table record.
func (k Keys) ParseTable(key string) (slot int, table string, err error) {
	return k.parseSlotTable(key, "tables")
}

// ParseRequests gives back slot and name of a table with a manual request.
func (k Keys) ParseRequests(key string) (slot int, table string, err error) {
	return k.parseSlotTable(key, "requests")
}

// ParseDemand gives back slot, table and shard of a demand record.
func (k Keys) ParseDemand(key string) (slot int, table, shard string, err error) {
	parts, err := k.split(key, "demand", 3)
	if err != nil {
		return 0, "", "", err
	}
	if slot, err = parseNumber(key, parts[0]); err != nil {
		return 0, "", "", err
	}
	return slot, parts[1], parts[2], nil
}

// ParseTurn gives back table and turn of a held turn.
func (k Keys) ParseTurn(key string) (table string, turn int, err error) {
	return k.parseTableTurn(key, "turns")
}

// ParseOutcome gives back table and turn of an outcome record.
func (k Keys) ParseOutcome(key string) (table string, turn int, err error) {
	return k.parseTableTurn(key, "outcomes")
}

// ParseReady gives back what the key of a due unit says.
func (k Keys) ParseReady(key string) (ReadyKey, error) {
	parts, err := k.split(key, "ready", 4)
	if err != nil {
		return ReadyKey{}, err
	}
	class, err := parseNumber(key, parts[0])
	if err != nil || class > 9 {
		return ReadyKey{}, fmt.Errorf("%q: %w: class %q", key, ErrKey, parts[0])
	}
	turns, err := turnset.Parse(parts[3])
	if err != nil {
		return ReadyKey{}, fmt.Errorf("%q: %w: %w", key, ErrKey, err)
	}
	// An order is written as it is, so that it sorts as it is: it was never escaped.
	if url.PathEscape(parts[1]) != parts[1] {
		return ReadyKey{}, fmt.Errorf("%q: %w: order %q", key, ErrKey, parts[1])
	}
	return ReadyKey{Class: class, Order: parts[1], Table: parts[2], Turns: turns}, nil
}

func (k Keys) parseName(key, kind string) (string, error) {
	parts, err := k.split(key, kind, 1)
	if err != nil {
		return "", err
	}
	return parts[0], nil
}

func (k Keys) parseSlotTable(key, kind string) (int, string, error) {
	parts, err := k.split(key, kind, 2)
	if err != nil {
		return 0, "", err
	}
	slot, err := parseNumber(key, parts[0])
	if err != nil {
		return 0, "", err
	}
	return slot, parts[1], nil
}

func (k Keys) parseTableTurn(key, kind string) (string, int, error) {
	parts, err := k.split(key, kind, 2)
	if err != nil {
		return "", 0, err
	}
	turn, err := turnset.ParseName(parts[1])
	if err != nil {
		return "", 0, fmt.Errorf("%q: %w: %w", key, ErrKey, err)
	}
	return parts[0], turn, nil
}

// split takes a key of some kind apart into exactly n unescaped, non-empty segments. Only the escaped form that this
// package writes is accepted, so that no two keys mean the same thing.
func (k Keys) split(key, kind string, n int) ([]string, error) {
	rest, ok := strings.CutPrefix(key, k.of(kind))
	if !ok {
		return nil, fmt.Errorf("%q: %w: it is not below %s", key, ErrKey, k.of(kind))
	}
	parts := strings.Split(rest, "/")
	if len(parts) != n {
		return nil, fmt.Errorf("%q: %w: %d segments below %s, want %d", key, ErrKey, len(parts), k.of(kind), n)
	}
	for i, part := range parts {
		plain, err := url.PathUnescape(part)
		if err != nil || plain == "" || url.PathEscape(plain) != part {
			return nil, fmt.Errorf("%q: %w: segment %q", key, ErrKey, part)
		}
		parts[i] = plain
	}
	return parts, nil
}

// parseNumber reads a decimal number as strconv.Itoa writes it.
func parseNumber(key, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || strconv.Itoa(n) != s {
		return 0, fmt.Errorf("%q: %w: number %q", key, ErrKey, s)
	}
	return n, nil
}

package ownership

import (
	"encoding/json"
	"iter"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// masterMirror is the masters' side of Slots.
type masterMirror struct{ *Slots }

func (m masterMirror) Put(kv *mvccpb.KeyValue) {
	name, err := m.keys.ParseMaster(string(kv.Key))
	if err != nil {
		return
	}
	var value struct {
		Draining bool `json:"draining"`
	}
	if json.Unmarshal(kv.Value, &value) != nil {
		return // it cannot be told from one of another version, and should own nothing
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[name] = liveMaster{value.Draining, kv.ModRevision}
	signal(m.wake)
}

func (m masterMirror) Delete(key string) {
	name, err := m.keys.ParseMaster(key)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, name)
	signal(m.wake)
}

func (m masterMirror) All() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for name, l := range m.live {
			if !yield(m.keys.Master(name), l.revision) {
				return
			}
		}
	}
}

func (m masterMirror) Fresh(revision int64) { m.setFresh(0, true, revision) }
func (m masterMirror) Stale(error)          { m.setFresh(0, false, 0) }

// slotMirror is the slots' side of Slots.
type slotMirror struct{ *Slots }

func (m slotMirror) Put(kv *mvccpb.KeyValue) {
	slot, err := m.keys.ParseSlot(string(kv.Key))
	if err != nil {
		return
	}
	token := SlotToken{Slot: slot}
	if err := json.Unmarshal(kv.Value, &token); err != nil {
		m.log.Warn("slot has an owner that cannot be read", "slot", slot, "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.standing[slot] = standingSlot{token, clientv3.LeaseID(kv.Lease), kv.ModRevision}
	signal(m.wake)
}

func (m slotMirror) Delete(key string) {
	slot, err := m.keys.ParseSlot(key)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.standing, slot)
	signal(m.wake)
}

func (m slotMirror) All() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for slot, standing := range m.standing {
			if !yield(m.keys.Slot(slot), standing.revision) {
				return
			}
		}
	}
}

func (m slotMirror) Fresh(revision int64) { m.setFresh(1, true, revision) }
func (m slotMirror) Stale(error)          { m.setFresh(1, false, 0) }

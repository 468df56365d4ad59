package master

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/objstore"
	"tidemark/internal/rootlock"
	"tidemark/internal/schedule"
)

// PolicyKey is the default policy on storage, as schedule.MarshalPolicy writes it; etcd holds a copy.
const PolicyKey = "_tidemark/policy.json"

// keepRoot watches over what a master stands on, until ctx is done: the cluster's record is in etcd, root.json still
// names this cluster, the default policy in etcd is that of storage; and the owner of slot 0 gives signs of life, unless
// the server around it does.
func (m *Master) keepRoot(ctx context.Context) error {
	var beatAt, rootAt time.Duration
	var token string
	for {
		now := m.config.Clock.Mono()
		grant, held := m.session.Current()
		if held && (now >= rootAt || grant.Token != token) {
			// A new session may stand in another etcd.
			rootAt, token = now+rootEvery, grant.Token
			m.checkRoot(ctx)
			m.copyPolicy(ctx)
		}
		if _, first := m.ownedSlots()[0]; first && now >= beatAt && !m.config.Standalone {
			beatAt = now + beatEvery
			if err := beat(ctx, m.config.Store, m.cluster.ID, objstore.Retry{Clock: m.config.Clock, Random: m.config.Random}); err != nil && ctx.Err() == nil {
				m.log.Warn("could not give a sign of life", "error", err)
			}
		}
		if m.config.Clock.Sleep(ctx, time.Second) != nil {
			return nil
		}
	}
}

// checkRoot puts the cluster's record back if it is gone, and stops scheduling while the root is another cluster's.
func (m *Master) checkRoot(ctx context.Context) {
	held := m.cluster
	_, err := m.claimer.claim(ctx, m.config.Cluster, held.Slots, &held)
	var refused *rootlock.HeldError
	if err != nil && !errors.As(err, &refused) {
		if ctx.Err() == nil {
			m.log.Warn("could not check who schedules the root; trying again", "root", m.config.Store.URL(), "error", err)
		}
		return
	}
	m.mu.Lock()
	changed := (m.suspended == nil) != (err == nil)
	m.suspended = err
	m.mu.Unlock()
	switch {
	case changed && err != nil:
		m.log.Error("scheduling is stopped", "error", err)
	case changed:
		m.log.Info("scheduling goes on")
		m.sweepSoon()
	}
}

// copyPolicy puts the default policy of storage into etcd. Only the owner of slot 0 does.
func (m *Master) copyPolicy(ctx context.Context) {
	token, first := m.ownedSlots()[0]
	if !first {
		return
	}
	body, _, err := m.config.Store.Get(ctx, PolicyKey)
	if errors.Is(err, objstore.ErrNotFound) {
		return
	}
	if err == nil {
		m.mu.Lock()
		same := string(body) == m.book.policy
		m.mu.Unlock()
		if same {
			return
		}
		err = m.write(ctx, token, clientv3.OpPut(m.keys.DefaultPolicy(), string(body)))
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("could not copy the default policy to etcd; trying again", "error", err)
	}
}

// putPolicy takes the default policy from etcd.
func (b *book) putPolicy(value []byte) error {
	p, err := schedule.ParsePolicy(value)
	b.policy, b.policyErr = string(value), err
	b.setDefaults(p)
	return err
}

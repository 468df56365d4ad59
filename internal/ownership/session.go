package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
)

// Options describes a session.
type Options struct {
	// Key is the session key: one of keys.Master or keys.Executor.
	Key string
	// Config is the timing of the lease; the zero value is DefaultConfig(DefaultTTL).
	Config Config
	// Details is what the session key says of its holder besides version and token, evaluated at every put, from any
	// goroutine; each call returns a map of its own. "address" is what a refused rival is told.
	Details func() map[string]any
	Clock   clock.Clock
	Random  random.Source
	Log     hclog.Logger
}

// Session is one process's lease in etcd and the session key that stands under it. Slots, turns and progress hang on
// the same lease. See Keeper for Run, Wait, Current, Status, OnFence and OnDeadline.
type Session struct {
	*Keeper
	holder *etcdHolder
}

// NewSession makes a session; Run keeps it.
func NewSession(client *clientv3.Client, o Options) (*Session, error) {
	if o.Config == (Config{}) {
		o.Config = DefaultConfig(DefaultTTL)
	}
	holder := &etcdHolder{client: client, key: o.Key, ttl: o.Config.TTL, details: o.Details}
	keeper, err := NewKeeper(holder, o.Config, o.Clock, o.Random, o.Log.With("session", o.Key))
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", o.Key, err)
	}
	return &Session{Keeper: keeper, holder: holder}, nil
}

// Key is the session key.
func (s *Session) Key() string { return s.holder.key }

// Compare compares that the session key still stands under the grant's lease.
func (s *Session) Compare(g Grant) clientv3.Cmp {
	return clientv3.Compare(clientv3.LeaseValue(s.holder.key), "=", int64(g.Lease))
}

// Refresh puts the session key again, for details that changed, such as draining.
func (s *Session) Refresh(ctx context.Context) error {
	grant, ok := s.Current()
	if !ok {
		return fmt.Errorf("session %s: refreshing its details: %w", s.holder.key, ErrNotHeld)
	}
	answer, err := etcd.Commit(ctx, s.holder.client, etcd.Txn{
		If:   []clientv3.Cmp{s.Compare(grant)},
		Then: []clientv3.Op{s.holder.put(grant.Token)},
	})
	if err != nil {
		return fmt.Errorf("session %s: refreshing its details: %w", s.holder.key, err)
	}
	if !answer.Succeeded {
		return fmt.Errorf("session %s: refreshing its details: %w", s.holder.key, ErrLeaseLost)
	}
	return nil
}

// LeaseOf is the lease of a token. Choosing the id ourselves means that it is known even if the answer to its grant is
// lost.
func LeaseOf(token string) clientv3.LeaseID {
	// A token is 32 hexadecimal digits; 15 of them are a positive lease id, which is what etcd asks for.
	if len(token) < 15 {
		return clientv3.NoLease
	}
	id, err := strconv.ParseInt(token[:15], 16, 64)
	if err != nil {
		return clientv3.NoLease
	}
	return clientv3.LeaseID(id)
}

// etcdHolder holds one lease in etcd. The lease alone means nothing: it is held iff the session key stands under it.
// Only the keeper's requests use it, one at a time.
type etcdHolder struct {
	client  *clientv3.Client
	key     string
	ttl     time.Duration
	details func() map[string]any
	former  clientv3.LeaseID // of the previous acquisition, which may have succeeded unseen
	cluster uint64           // id of the etcd cluster that granted the lease
	seen    int64            // highest revision of it that was seen
}

// Acquire: our own former lease is revoked if the key still stands under it; then a fresh lease, and the key under it
// unless somebody else's stands there.
func (h *etcdHolder) Acquire(ctx context.Context, token string) Answer {
	standing, err := h.client.Get(ctx, h.key)
	if err != nil {
		return Answer{Kind: NotDone, Err: err}
	}
	h.cluster, h.seen = standing.Header.ClusterId, standing.Header.Revision
	if len(standing.Kvs) > 0 {
		if lease := clientv3.LeaseID(standing.Kvs[0].Lease); lease != h.former || lease == clientv3.NoLease {
			return rival(standing.Kvs[0])
		}
		if _, err := h.client.Revoke(ctx, h.former); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return Answer{Kind: NotDone, Err: fmt.Errorf("revoking our former lease: %w", err)}
		}
	}
	h.former = LeaseOf(token)
	if err := h.grant(ctx, h.former); err != nil {
		// A lease that was granted unseen has no key under it and runs out.
		return Answer{Kind: NotDone, Err: fmt.Errorf("granting a lease: %w", err)}
	}
	answer, err := etcd.Commit(ctx, h.client, etcd.Txn{
		If:   []clientv3.Cmp{etcd.Absent(h.key)},
		Then: []clientv3.Op{h.put(token)},
		Else: []clientv3.Op{clientv3.OpGet(h.key)},
	})
	switch {
	case errors.Is(err, etcd.ErrUnknown):
		return Answer{Kind: Unanswered, Err: err}
	case err != nil:
		return Answer{Kind: NotDone, Err: err}
	case answer.Succeeded:
		h.seen = answer.Header.Revision
		return Answer{Kind: Ours}
	}
	return h.judge((*clientv3.GetResponse)(answer.Responses[0].GetResponseRange()), token)
}

// Renew is idempotent. Once the keepalive is acknowledged, the key is looked at as well, if there is time: somebody may
// have deleted it, or etcd may be another one or have gone back in time.
func (h *etcdHolder) Renew(ctx context.Context, token string) Answer {
	if _, err := h.client.KeepAliveOnce(ctx, LeaseOf(token)); err != nil {
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return Answer{Kind: Gone, Err: err}
		}
		return Answer{Kind: Unanswered, Err: err}
	}
	standing, err := h.client.Get(ctx, h.key)
	if err != nil {
		return Answer{Kind: Ours}
	}
	if standing.Header.ClusterId != h.cluster || standing.Header.Revision < h.seen {
		return Answer{Kind: Gone, Err: etcd.ErrReplaced}
	}
	h.seen = standing.Header.Revision
	return h.judge(standing, token)
}

func (h *etcdHolder) Read(ctx context.Context, token string) Answer {
	standing, err := h.client.Get(ctx, h.key)
	if err != nil {
		return Answer{Kind: Unanswered, Err: err}
	}
	return h.judge(standing, token)
}

func (h *etcdHolder) Release(ctx context.Context, token string) Answer {
	_, err := h.client.Revoke(ctx, LeaseOf(token))
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return Answer{Kind: Gone}
	case err != nil:
		return Answer{Kind: Unanswered, Err: err}
	}
	return Answer{Kind: Ours}
}

func (h *etcdHolder) judge(standing *clientv3.GetResponse, token string) Answer {
	switch {
	case len(standing.Kvs) == 0:
		return Answer{Kind: Gone, Err: fmt.Errorf("key %s does not exist", h.key)}
	case clientv3.LeaseID(standing.Kvs[0].Lease) == LeaseOf(token):
		return Answer{Kind: Ours}
	}
	return rival(standing.Kvs[0])
}

// rival describes whoever a session key stands for.
func rival(kv *mvccpb.KeyValue) Answer {
	var value struct {
		Token   string `json:"token"`
		Address string `json:"address"`
	}
	holder := string(kv.Key)
	if json.Unmarshal(kv.Value, &value) == nil && value.Address != "" {
		holder += " at " + value.Address
	}
	return Answer{Kind: Rival, Holder: holder, Token: value.Token, Err: fmt.Errorf("held by %s", holder)}
}

// put is the session key under the token's lease.
func (h *etcdHolder) put(token string) clientv3.Op {
	value := map[string]any{}
	if h.details != nil {
		value = h.details()
	}
	value["v"], value["token"] = 1, token
	// Details are plain values of the process itself; what cannot be encoded is left out.
	b, err := json.Marshal(value)
	if err != nil {
		b, _ = json.Marshal(map[string]any{"v": 1, "token": token})
	}
	return clientv3.OpPut(h.key, string(b), clientv3.WithLease(LeaseOf(token)))
}

// grant asks for a lease under an id of our own; etcd counts in whole seconds.
func (h *etcdHolder) grant(ctx context.Context, id clientv3.LeaseID) error {
	seconds := int64((h.ttl + time.Second - 1) / time.Second)
	_, err := clientv3.RetryLeaseClient(h.client).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(id), TTL: seconds})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrLeaseExist) {
		return nil // the client repeated a request that had been applied: nobody else draws this id
	}
	return err
}

package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Cluster is the record P/cluster: what every process of a cluster must agree on. It is created once.
type Cluster struct {
	V     int    `json:"v"`
	Name  string `json:"name"`
	ID    string `json:"id"`
	Root  string `json:"root"`  // as the creator wrote it, for people
	Slots int    `json:"slots"` // fixed when the cluster is created
}

// ErrNoCluster: no master has served this prefix yet, or its keys were wiped. A master puts the record back.
var ErrNoCluster = errors.New("no cluster in etcd")

// ReadCluster reads the record of the cluster. A record of another version, or without slots, is refused.
func ReadCluster(ctx context.Context, kv clientv3.KV, keys Keys) (Cluster, error) {
	got, err := kv.Get(ctx, keys.Cluster())
	if err != nil {
		return Cluster{}, fmt.Errorf("reading %s: %w", keys.Cluster(), err)
	}
	if len(got.Kvs) == 0 {
		return Cluster{}, fmt.Errorf("%w under %s; start a master with this prefix first", ErrNoCluster, keys.Prefix)
	}
	return ParseCluster(got.Kvs[0].Value)
}

// ParseCluster reads the value of a cluster record.
func ParseCluster(value []byte) (Cluster, error) {
	var c Cluster
	if err := json.Unmarshal(value, &c); err != nil {
		return Cluster{}, fmt.Errorf("the cluster record is not JSON: %w", err)
	}
	if c.V != 1 || c.Slots < 1 {
		return Cluster{}, fmt.Errorf("the cluster record has version %d and %d slots; this program knows version 1 with at least one slot", c.V, c.Slots)
	}
	return c, nil
}

package dev

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Settings of the embedded etcd: one member that never talks to a peer.
const (
	etcdHeartbeat    = 50 * time.Millisecond  // a single member elects itself after one election timeout …
	etcdElection     = 250 * time.Millisecond // … so a short one makes it ready sooner
	etcdStartTimeout = 30 * time.Second       // replaying a large log on a slow disk
	// Revisions older than this are compacted away, as production clusters are told to do; watches older than that
	// resume from a snapshot.
	etcdCompactAfter = "5m"
	etcdQuotaBytes   = 2 << 30
)

// Etcd is an embedded single-member etcd.
type Etcd struct{ running *embed.Etcd }

// StartEtcd starts an etcd whose data is kept in dir, listening for clients on address (host:port, port 0 picks one). It
// returns once the member answers.
func StartEtcd(ctx context.Context, dir, address string) (*Etcd, error) {
	return startEtcd(ctx, dir, etcdConfig(dir, address))
}

// startDisposableEtcd is StartEtcd for data that nobody needs once the process has ended: nothing is synced to disk.
func startDisposableEtcd(ctx context.Context, dir, address string) (*Etcd, error) {
	cfg := etcdConfig(dir, address)
	cfg.UnsafeNoFsync = true
	return startEtcd(ctx, dir, cfg)
}

func startEtcd(ctx context.Context, dir string, cfg *embed.Config) (*Etcd, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the embedded etcd's directory: %w; choose another --root", err)
	}
	running, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot start the embedded etcd in %s: %w; is another `tidemark dev` using this root?", dir, err)
	}
	started := &Etcd{running: running}
	timeout, cancel := context.WithTimeout(ctx, etcdStartTimeout)
	defer cancel()
	select {
	case <-running.Server.ReadyNotify():
		return started, nil
	case err := <-running.Err():
		started.Close()
		return nil, fmt.Errorf("the embedded etcd in %s stopped while starting: %w", dir, err)
	case <-timeout.Done():
		started.Close()
		return nil, errors.Join(fmt.Errorf("the embedded etcd in %s is not ready", dir), context.Cause(timeout))
	}
}

// Endpoint is the URL at which clients reach the etcd.
func (e *Etcd) Endpoint() string { return "http://" + e.running.Clients[0].Addr().String() }

// Close stops the etcd and waits for it.
func (e *Etcd) Close() { e.running.Close() }

func etcdConfig(dir, address string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "dev"
	cfg.Dir = dir
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: address}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs = uint(etcdHeartbeat.Milliseconds())
	cfg.ElectionMs = uint(etcdElection.Milliseconds())
	cfg.AutoCompactionMode = embed.CompactorModePeriodic
	cfg.AutoCompactionRetention = etcdCompactAfter
	cfg.QuotaBackendBytes = etcdQuotaBytes
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg
}

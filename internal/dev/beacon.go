package dev

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"tidemark/internal/objstore"
)

// Beacon is what a running `tidemark dev` leaves in its root, so that other commands on the same root find it without
// flags. It is a convenience: a stale one costs one failed dial, and nothing rests on it.
type Beacon struct {
	Etcd    []string `json:"etcd"`
	Cluster string   `json:"cluster"`
	Listen  string   `json:"listen"` // host:port of the HTTP server
	PID     int      `json:"pid"`
}

func beaconPath(root string) string { return filepath.Join(root, "_tidemark", "dev.json") }

// ReadBeacon returns the beacon in a root, if there is one.
func ReadBeacon(root string) (Beacon, bool) {
	dir, ok := objstore.LocalDir(root)
	if !ok {
		return Beacon{}, false
	}
	body, err := os.ReadFile(beaconPath(dir))
	if err != nil {
		return Beacon{}, false
	}
	var b Beacon
	if json.Unmarshal(body, &b) != nil || len(b.Etcd) == 0 {
		return Beacon{}, false
	}
	return b, true
}

// writeBeacon leaves the beacon and returns how to take it away.
func writeBeacon(dir string, b Beacon) (remove func(), err error) {
	body, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encoding the beacon: %w", err)
	}
	path := beaconPath(dir)
	fresh := path + ".new"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := os.WriteFile(fresh, append(body, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	return func() { _ = os.Remove(path) }, nil
}

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
)

// rollingRestarts is how often every master and executor is restarted while nothing else happens.
const rollingRestarts = 2

// claimed is what etcd said of one execution.
type claimed struct {
	turn    string
	results map[string]bool // of its outcomes
}

// drains restarts the fleet with drains while the writers write and nothing is wrong, and checks that no work was done
// twice or for nothing: every execution that was claimed ended by itself and not as lost or failed, every generation was
// merged by one commit, and no execution left files that no commit names.
func (c *chaos) drains() {
	c.proxy.Rule(nil)
	c.etcd.Mend()
	c.etcd.Restart(c.t)
	c.etcd.Ready(c.t)
	c.revive()
	c.wait()
	keys := etcd.KeysOf("default")
	admin := c.etcd.Admin()
	now, err := admin.Get(c.t.Context(), keys.Cluster())
	if err != nil || len(now.Kvs) == 0 {
		c.t.Fatalf("reading the cluster's record: %v, %v", now, err)
	}
	begun := map[string]int64{}
	for _, table := range []string{"events", "states"} {
		begun[table] = c.newest(table)
	}
	watching, stop := context.WithCancel(c.t.Context())
	defer stop()
	executions := make(chan map[string]*claimed, 1)
	events := admin.Watch(watching, keys.Prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1))
	ended := keys.Prefix + "/test-ended"
	go func() { executions <- follow(events, keys, ended) }()
	for range rollingRestarts {
		c.roll()
	}
	c.settle()
	// Upkeep may still be under way, or begin: what is watched ends while no turn is held.
	idle := clientv3.Compare(clientv3.CreateRevision(keys.TurnsAll()).WithPrefix(), "=", 0)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		answer, err := admin.Txn(c.t.Context()).If(idle).Then(clientv3.OpPut(ended, "")).Commit()
		if err != nil {
			c.t.Fatal(err)
		}
		if answer.Succeeded {
			break
		}
		if time.Now().After(deadline) {
			c.t.Fatal("turns are still held a minute after everything was merged")
		}
	}
	all := <-executions
	if all == nil {
		c.t.Fatal("the watch of the drains broke")
	}
	committed := map[string]bool{}
	for _, table := range []string{"events", "states"} {
		c.mergedOnce(table, begun[table], committed)
	}
	for id, x := range all {
		for result := range x.results {
			if result == "lost" || result == "failed" {
				c.t.Errorf("execution %s of %s, during drains alone, is %s", id, x.turn, result)
			}
			if result == "merged" && strings.HasSuffix(x.turn, "/log") {
				committed[id] = true // checkpoints and cleanup commit nothing
			}
		}
		if len(x.results) == 0 {
			c.t.Errorf("execution %s of %s, during drains alone, has left no outcome", id, x.turn)
		}
		if x.results["merged"] && !committed[id] {
			c.t.Errorf("execution %s of %s says that it has merged, and no commit is its", id, x.turn)
		}
	}
	for _, table := range []string{"events", "states"} {
		for _, key := range c.keysUnder(table + "/part-") {
			id, _, _ := strings.Cut(strings.TrimPrefix(key, table+"/part-"), "-")
			if all[id] != nil && !committed[id] {
				c.t.Errorf("%s was written by an execution that has committed nothing", key)
			}
		}
	}
	c.t.Logf("%d rolling restarts: %d executions were claimed; %d have committed since, or done upkeep", rollingRestarts, len(all), len(committed))
}

// wait lets everything that is sealed so far be merged, more or less: the writers go on.
func (c *chaos) wait() {
	for _, table := range []string{"events", "states"} {
		tidemark(c.t, c.env, "wait", table, "--timeout", "1m")
	}
	time.Sleep(3 * chaosLease) // what was claimed before and has died has run out
}

// follow collects executions until a key is put; nil if the watch breaks.
func follow(events clientv3.WatchChan, keys etcd.Keys, until string) map[string]*claimed {
	all := map[string]*claimed{}
	for answer := range events {
		if answer.Err() != nil {
			return nil
		}
		for _, ev := range answer.Events {
			key := string(ev.Kv.Key)
			if key == until {
				return all
			}
			var record struct {
				Execution string `json:"execution"`
				Result    string `json:"result"`
			}
			if ev.Type != clientv3.EventTypePut || json.Unmarshal(ev.Kv.Value, &record) != nil || record.Execution == "" {
				continue
			}
			switch {
			case strings.HasPrefix(key, keys.TurnsAll()):
				all[record.Execution] = &claimed{turn: strings.TrimPrefix(key, keys.TurnsAll()), results: map[string]bool{}}
			case strings.HasPrefix(key, keys.OutcomesAll()) && all[record.Execution] != nil:
				all[record.Execution].results[record.Result] = true
			}
		}
	}
	return nil
}

// mergedOnce checks that the marks of a table's log only rise after a version, and adds the executions that have committed.
func (c *chaos) mergedOnce(table string, after int64, committed map[string]bool) {
	marks := map[string]int64{}
	for version := int64(0); version <= c.newest(table); version++ {
		key := fmt.Sprintf("%s/_delta_log/%020d.json", table, version)
		for line := range bytes.Lines(c.object(key)) {
			var a struct {
				Txn *struct {
					AppID   string `json:"appId"`
					Version int64  `json:"version"`
				} `json:"txn"`
				CommitInfo *struct {
					Execution string `json:"tidemarkExecution"`
				} `json:"commitInfo"`
			}
			if err := json.Unmarshal(line, &a); err != nil {
				c.t.Fatalf("%s: %v", key, err)
			}
			if a.Txn != nil {
				if a.Txn.Version <= marks[a.Txn.AppID] {
					c.t.Errorf("%s moves the mark of %s from %d to %d", key, a.Txn.AppID, marks[a.Txn.AppID], a.Txn.Version)
				}
				marks[a.Txn.AppID] = a.Txn.Version
			}
			if a.CommitInfo != nil && a.CommitInfo.Execution != "" && version > after {
				committed[a.CommitInfo.Execution] = true
			}
		}
	}
}

// newest is the newest version of a table's log.
func (c *chaos) newest(table string) (version int64) {
	for _, key := range c.keysUnder(table + "/_delta_log/") {
		if strings.HasSuffix(key, ".json") {
			_, _ = fmt.Sscanf(key[len(table+"/_delta_log/"):], "%d.json", &version) // in order: the last one stays
		}
	}
	return version
}

// keysUnder lists what is under the root, and object reads it, past all of Tidemark's code.
func (c *chaos) keysUnder(prefix string) (keys []string) {
	whole := c.prefix() + prefix
	pages := s3.NewListObjectsV2Paginator(c.bucket.Client(), &s3.ListObjectsV2Input{Bucket: &c.bucket.Bucket, Prefix: &whole})
	for pages.HasMorePages() {
		page, err := pages.NextPage(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		for _, o := range page.Contents {
			keys = append(keys, strings.TrimPrefix(*o.Key, c.prefix()))
		}
	}
	return keys
}

func (c *chaos) object(key string) []byte {
	whole := c.prefix() + key
	got, err := c.bucket.Client().GetObject(c.t.Context(), &s3.GetObjectInput{Bucket: &c.bucket.Bucket, Key: &whole})
	if err != nil {
		c.t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return body
}

// prefix is the root's folder in its bucket.
func (c *chaos) prefix() string {
	return strings.TrimPrefix(c.bucket.root, "s3://"+c.bucket.Bucket+"/") + "/"
}

package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"tidemark/internal/objstore"
	"tidemark/test/sim/simetcd"
)

// The deliberate bugs by which the simulator is tested itself. Each is made at a seam, by a store, a wire or a clock that
// lies to the code, so that nothing in the system knows of them.
const (
	mutantPublishEarly   = "publish a merged mark before its commit is known to have landed"
	mutantForgetTxn      = "forget the txn check"
	mutantAbsentIsZero   = "take an unreported mark for zero"
	mutantTrimEarly      = "trim before the commit"
	mutantStaleTurn      = "honour a stale turn's exclusivity instead of the log"
	mutantNoBoundary     = "drop the boundary rule"
	mutantLowerOnScan    = "lower a mark on scan"
	mutantLocalClock     = "sweep by a local clock"
	mutantNoFence        = "skip the fence"
	mutantAdoptToken     = "adopt another's token"
	mutantPartialOverlap = "rebase over a partial overlap"
)

// mutants are all of them.
var mutants = []string{
	mutantPublishEarly, mutantForgetTxn, mutantAbsentIsZero, mutantTrimEarly, mutantStaleTurn, mutantNoBoundary,
	mutantLowerOnScan, mutantLocalClock, mutantNoFence, mutantAdoptToken, mutantPartialOverlap,
}

// mutantStore is the store of a process with a bug.
type mutantStore struct {
	objstore.Store
	p      *process
	mutant string
}

func isCommit(key string) bool {
	return strings.Contains(key, "/_delta_log/") && strings.HasSuffix(key, ".json")
}

func isManifest(key string) bool { return strings.Contains(key, "/manifest/") }

func executes(p *process) bool { return strings.HasPrefix(p.name, "exec-") }

func (s *mutantStore) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	r := s.Store.PutIfAbsent(ctx, key, body)
	switch {
	case s.mutant == mutantPublishEarly && isCommit(key) && executes(s.p) && r.Outcome == objstore.Unknown:
		// It went out, so it will have landed.
		return objstore.Result{Outcome: objstore.Applied, Info: objstore.Info{Key: key, Size: int64(len(body))}}
	case s.mutant == mutantStaleTurn && isCommit(key) && executes(s.p) && errors.Is(r.Err, objstore.ErrExists):
		// The turn is ours, so whatever took this version cannot concern us: put it at the next.
		var version int64
		if _, err := fmt.Sscanf(path.Base(key), "%d.json", &version); err != nil {
			return r
		}
		return s.PutIfAbsent(ctx, fmt.Sprintf("%s/%020d.json", path.Dir(key), version+1), body)
	}
	return r
}

func (s *mutantStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	body, info, err := s.Store.Get(ctx, key)
	if err != nil {
		return body, info, err
	}
	switch {
	case s.mutant == mutantForgetTxn && isCommit(key) && executes(s.p):
		// What a rival's commit says about marks is not looked at.
		body = editLines(body, func(line []byte, _ int) []byte {
			if bytes.HasPrefix(line, []byte(`{"txn"`)) && !s.mine(body) {
				return nil
			}
			return line
		})
	case s.mutant == mutantPartialOverlap && isCommit(key) && executes(s.p):
		// Of a rival's marks only the first is compared.
		txns := 0
		body = editLines(body, func(line []byte, _ int) []byte {
			if bytes.HasPrefix(line, []byte(`{"txn"`)) && !s.mine(body) {
				if txns++; txns > 1 {
					return nil
				}
			}
			return line
		})
	case s.mutant == mutantTrimEarly && isCommit(key) && s.p.name == "janitor":
		// A merge is under way, so its generation is as good as merged.
		body = editLines(body, func(line []byte, _ int) []byte {
			var a struct {
				Txn *struct {
					AppID       string `json:"appId"`
					Version     int64  `json:"version"`
					LastUpdated int64  `json:"lastUpdated"`
				} `json:"txn"`
			}
			if json.Unmarshal(line, &a) != nil || a.Txn == nil {
				return line
			}
			a.Txn.Version++
			edited, err := json.Marshal(a)
			if err != nil {
				return line
			}
			return append(edited, '\n')
		})
	case s.mutant == mutantNoBoundary && isManifest(key):
		body = []byte(strings.Replace(string(body), fmt.Sprintf(`"boundary":%d`, boundaryOf(body)), `"boundary":0`, 1))
	}
	return body, info, nil
}

// mine says whether a commit is of an execution of this very process, by what the process has sent.
func (s *mutantStore) mine(body []byte) bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for e := range s.p.executions {
		if bytes.Contains(body, []byte(e)) {
			return true
		}
	}
	return false
}

func boundaryOf(body []byte) uint64 {
	var m manifestFile
	_ = json.Unmarshal(body, &m) // what cannot be read stays as it is
	return m.Boundary
}

// editLines passes every line through edit; nil leaves it out.
func editLines(body []byte, edit func(line []byte, n int) []byte) []byte {
	var out []byte
	n := 0
	for line := range bytes.Lines(body) {
		out = append(out, edit(line, n)...)
		n++
	}
	return out
}

func (s *mutantStore) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	page, err := s.Store.List(ctx, req)
	if s.mutant == mutantLocalClock && err == nil {
		page.Date = s.p.clock.Now()
	}
	return page, err
}

// mutantWire is the connection to etcd of a process with a bug.
type mutantWire struct {
	wire
	mutant string
}

func (t mutantWire) Call(ctx context.Context, r simetcd.Request, apply func() (proto.Message, error)) (proto.Message, error) {
	if txn, ok := r.Body.(*pb.TxnRequest); ok {
		for _, op := range txn.Success {
			if put := op.GetRequestPut(); put != nil && strings.HasPrefix(string(put.Key), prefix+"/demand/") {
				put.Value = t.demand(put.Value)
			}
		}
	}
	reply, err := t.wire.Call(ctx, r, apply)
	switch {
	case t.mutant == mutantNoFence && executes(t.p) && r.Method == "LeaseKeepAlive" && !t.p.isDead():
		// Whatever etcd says, or does not say, the lease is held.
		id := r.Body.(*pb.LeaseKeepAliveRequest).ID
		return &pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{ClusterId: 1}, ID: id, TTL: 15}, nil
	case t.mutant == mutantNoFence && executes(t.p) && r.Method == "Range" && string(r.Body.(*pb.RangeRequest).Key) == prefix+"/executors/"+t.p.name:
		if got, ok := reply.(*pb.RangeResponse); ok && err == nil && len(got.Kvs) == 0 && t.p.world.now()-t.p.clock.start > 20*time.Second {
			return nil, errLost
		}
	case t.mutant == mutantAdoptToken && executes(t.p) && r.Method == "Txn" && err == nil:
		return t.adopt(r.Body.(*pb.TxnRequest), reply.(*pb.TxnResponse)), nil
	}
	return reply, err
}

// demand changes what is published about a shard.
func (t mutantWire) demand(value []byte) []byte {
	var d map[string]any
	if json.Unmarshal(value, &d) != nil {
		return value
	}
	switch {
	case t.mutant == mutantAbsentIsZero && d["merged"] == nil:
		d["merged"] = map[string]any{"gen": 0, "epoch": 0, "bytes": 0, "rows": 0}
	case t.mutant == mutantLowerOnScan && d["source"] == "scan":
		if m, ok := d["merged"].(map[string]any); ok && m["gen"].(float64) > 0 {
			m["gen"] = m["gen"].(float64) - 1
		}
	default:
		return value
	}
	edited, err := json.Marshal(d)
	if err != nil {
		return value
	}
	return edited
}

// adopt takes a claim that lost against another's turn for won.
func (t mutantWire) adopt(r *pb.TxnRequest, reply *pb.TxnResponse) *pb.TxnResponse {
	claims := false
	for _, op := range r.Success {
		put := op.GetRequestPut()
		claims = claims || put != nil && strings.HasPrefix(string(put.Key), prefix+"/turns/")
	}
	if !claims || reply.Succeeded {
		return reply
	}
	adopted := &pb.TxnResponse{Header: reply.Header, Succeeded: true}
	for range r.Success {
		adopted.Responses = append(adopted.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}})
	}
	return adopted
}

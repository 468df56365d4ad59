package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tidemark/internal/rootlock"
)

// Two standalone servers want one root, which is another than that of the cluster. Whoever holds it works: it creates
// objects under work/.

const rivalLease = 15 * time.Second

// rootFile is the record of a root's lock.
type rootFile struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

func (s *sim) rivalMain(p *process) error {
	store := &processStore{p: p, inner: s.rivalRoot, seen: s.worked, sent: s.works}
	for p.ctx.Err() == nil {
		err := rootlock.Run(p.ctx, rootlock.Options{
			Store: store, Clock: p.clock, Random: p.random, Log: s.log(p), Cluster: "alone", Holder: p.name, Lease: rivalLease, Wait: true,
		}, func(ctx context.Context, c rootlock.Claim) error {
			s.world.trace.say(p.name, "serves the root as %s", c.ID)
			p.mu.Lock()
			p.claim = c.ID
			p.mu.Unlock()
			r := s.world.draw(p.name + " serves " + c.ID)
			for n := 0; ctx.Err() == nil; n++ {
				c.Store.PutIfAbsent(ctx, fmt.Sprintf("work/%s/%d", c.ID, n), []byte(p.name))
				if p.clock.Sleep(ctx, between(r, 100*time.Millisecond, 5*time.Second)) != nil {
					break
				}
			}
			return nil
		})
		if p.ctx.Err() == nil {
			s.world.trace.say(p.name, "does not serve the root: %v", err)
			_ = p.clock.Sleep(p.ctx, 2*time.Second)
		}
	}
	return nil
}

// works checks what a server sends: the root's lock is its own.
func (s *sim) works(p *process, op, key string, _ []byte) {
	if !strings.HasPrefix(key, "work/") {
		return
	}
	var lock rootFile
	if body, _, err := s.rivalRoot.Get(context.Background(), "_tidemark/root.json"); err == nil {
		_ = json.Unmarshal(body, &lock) // what cannot be read names nobody
	}
	p.mu.Lock()
	claim := p.claim
	p.mu.Unlock()
	if lock.ID != claim || lock.Kind != "standalone" {
		s.world.fail("%s sends %s %s under claim %s, and the root is held by %s (%s)", p.name, op, key, claim, lock.ID, lock.Kind)
	}
}

// worked notes that somebody serves the root.
func (s *sim) worked(_ *process, _, key string, _ []byte) {
	if strings.HasPrefix(key, "work/") {
		s.lastWork = s.world.now()
	}
}

// idle says that nobody serves the standalone root although somebody could; "" otherwise.
func (s *sim) idle(healed time.Duration) string {
	if s.world.plan.rivals == 0 || s.lastWork > healed {
		return ""
	}
	return "nobody serves the standalone root"
}

package ownership

import (
	"context"
	"sync"
	"time"
)

// leaseServer is a lease kept in memory, on the bubble's clock, with a network before it that a test can spoil.
type leaseServer struct {
	ttl time.Duration

	mu      sync.Mutex // guards the following
	token   string
	expires time.Time
	log     []string        // requests that arrived
	delay   time.Duration   // of every answer
	cut     bool            // nothing arrives, nothing is answered
	deaf    map[Request]int // this many requests of a kind arrive, but are not answered
	tokens  map[string]int  // acquisitions per token
}

func newLeaseServer(ttl time.Duration) *leaseServer {
	return &leaseServer{ttl: ttl, deaf: map[Request]int{}, tokens: map[string]int{}}
}

// ask carries one request over the spoiled network.
func (s *leaseServer) ask(ctx context.Context, request Request, apply func() Answer) Answer {
	s.mu.Lock()
	if s.cut {
		s.mu.Unlock()
		<-ctx.Done()
		return Answer{Kind: Unanswered, Err: ctx.Err()}
	}
	if s.token != "" && !time.Now().Before(s.expires) {
		s.token = ""
	}
	s.log = append(s.log, request.String())
	answer := apply()
	deaf, delay := s.deaf[request] > 0, s.delay
	if deaf {
		s.deaf[request]--
	}
	s.mu.Unlock()
	if deaf {
		<-ctx.Done()
		return Answer{Kind: Unanswered, Err: ctx.Err()}
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return Answer{Kind: Unanswered, Err: ctx.Err()}
		}
	}
	return answer
}

func (s *leaseServer) judge(token string) Answer {
	switch s.token {
	case token:
		return Answer{Kind: Ours}
	case "":
		return Answer{Kind: Gone}
	}
	return Answer{Kind: Rival, Holder: "holder of " + s.token, Token: s.token}
}

func (s *leaseServer) Acquire(ctx context.Context, token string) Answer {
	return s.ask(ctx, Acquire, func() Answer {
		if s.token != "" {
			return s.judge(token)
		}
		s.token, s.expires = token, time.Now().Add(s.ttl)
		s.tokens[token]++
		return Answer{Kind: Ours}
	})
}

func (s *leaseServer) Renew(ctx context.Context, token string) Answer {
	return s.ask(ctx, Renew, func() Answer {
		if s.token == token {
			s.expires = time.Now().Add(s.ttl)
		}
		return s.judge(token)
	})
}

func (s *leaseServer) Read(ctx context.Context, token string) Answer {
	return s.ask(ctx, ReadAcquire, func() Answer { return s.judge(token) })
}

func (s *leaseServer) Release(ctx context.Context, token string) Answer {
	return s.ask(ctx, Release, func() Answer {
		answer := s.judge(token)
		if answer.Kind == Ours {
			s.token = ""
		}
		return answer
	})
}

func (s *leaseServer) set(change func(*leaseServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// rival puts somebody else's token there, who keeps renewing.
func (s *leaseServer) rival(token string) {
	s.set(func(s *leaseServer) { s.token, s.expires = token, time.Now().Add(1000*time.Hour) })
}

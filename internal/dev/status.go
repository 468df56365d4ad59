package dev

import "errors"

// Status is what /status of an all-in-one server shows.
type Status struct {
	Role      string `json:"role"`
	Root      *Root  `json:"root,omitempty"` // of a standalone server, once it has the root
	Master    any    `json:"master"`
	Executors []any  `json:"executors"`
}

// Root is a standalone server's claim of its root.
type Root struct {
	ID string `json:"id"` // of the lock
	// LeaseLeftMS is how long the claim lasts without another sign of life; absent on a local root, which has no lease.
	LeaseLeftMS *int64 `json:"lease_left_ms,omitempty"`
}

// Healthy is nil unless one of the parts needs a person.
func (s *Server) Healthy() error {
	if !s.built.Load() {
		return nil // starting, or waiting for the root
	}
	err := s.master.Healthy()
	for _, e := range s.executors {
		err = errors.Join(err, e.Healthy())
	}
	return err
}

// Ready is nil once all parts take work.
func (s *Server) Ready() error {
	if !s.built.Load() {
		return errors.New("starting, or waiting for the root")
	}
	err := s.master.Ready()
	for _, e := range s.executors {
		err = errors.Join(err, e.Ready())
	}
	return err
}

// Status describes all parts; its type is Status.
func (s *Server) Status() any {
	status := Status{Role: s.options.role(), Executors: []any{}}
	if claim := s.claimed.Load(); claim != nil {
		status.Root = &Root{ID: claim.ID}
		if left, leased := s.leaseLeft(); leased {
			ms := left.Milliseconds()
			status.Root.LeaseLeftMS = &ms
		}
	}
	if !s.built.Load() {
		return status
	}
	status.Master = s.master.Status()
	for _, e := range s.executors {
		status.Executors = append(status.Executors, e.Status())
	}
	return status
}

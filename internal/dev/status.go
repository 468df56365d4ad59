package dev

import "errors"

// Status is what /status of an all-in-one server shows.
type Status struct {
	Role      string `json:"role"`
	Master    any    `json:"master"`
	Executors []any  `json:"executors"`
}

// Healthy is nil unless one of the parts needs a person.
func (s *Server) Healthy() error {
	if s.master == nil {
		return nil // starting
	}
	err := s.master.Healthy()
	for _, e := range s.executors {
		err = errors.Join(err, e.Healthy())
	}
	return err
}

// Ready is nil once all parts take work.
func (s *Server) Ready() error {
	if s.master == nil {
		return errors.New("starting")
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
	if s.master != nil {
		status.Master = s.master.Status()
	}
	for _, e := range s.executors {
		status.Executors = append(status.Executors, e.Status())
	}
	return status
}

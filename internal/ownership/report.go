package ownership

import "time"

// Report is a lease as /status shows it: times are distances from now on the holder's monotonic clock.
type Report struct {
	State          string `json:"state"`
	Reason         string `json:"reason,omitempty"`
	UnrenewedMS    *int64 `json:"unrenewed_ms,omitempty"`  // since the newest acknowledged renewal was sent; absent before the first
	QuarantineMS   int64  `json:"quarantine_ms,omitempty"` // how much longer it is in quarantine
	Reacquisitions int    `json:"reacquisitions"`
}

// Report describes the lease at a monotonic time.
func (s Status) Report(now time.Duration) Report {
	r := Report{State: s.State.String(), Reason: s.Reason, Reacquisitions: s.Reacquisitions}
	if s.RenewedAt != 0 {
		since := max(now-s.RenewedAt, 0).Milliseconds()
		r.UnrenewedMS = &since
	}
	if s.QuarantineEnd != 0 {
		r.QuarantineMS = max(s.QuarantineEnd-now, 0).Milliseconds()
	}
	return r
}

package merge

import "sync"

// Progress is how much work an execution has completed. Every report is higher than the one before in at least one
// field, and none is made without completed work, so that a standstill means that the execution is stuck.
type Progress struct {
	RowsRead      int64
	RowsWritten   int64
	BytesUploaded int64
	Commits       int64
}

// meter adds up completed work and reports it. It is safe for concurrent use.
type meter struct {
	mu     sync.Mutex // guards now, and keeps reports in order
	now    Progress
	report func(Progress) // called with mu held: it must not block
}

func (m *meter) add(p Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.RowsRead += p.RowsRead
	m.now.RowsWritten += p.RowsWritten
	m.now.BytesUploaded += p.BytesUploaded
	m.now.Commits += p.Commits
	if m.report != nil {
		m.report(m.now)
	}
}

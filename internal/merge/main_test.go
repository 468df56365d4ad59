package merge

import (
	"testing"

	"go.uber.org/goleak"
)

// Every goroutine of a merge has ended when the merge returns.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Package etcd_test runs real masters, executors and writers over real etcd members and what can happen to them.
//
// `make test-etcd` sets TIDEMARK_TEST_ETCD=1; a plain `go test` leaves out what runs for minutes.
package etcd_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Members in this process leave idle connections behind, which their HTTP library closes in its own time. Nothing of
// ours speaks HTTP here.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"))
}

// Package e2e holds the end-to-end suite: the real binaries as processes, real etcd, the real input of
// ../shared/data, and readers that share no code with Tidemark (delta-rs and DuckDB, see read.py).
//
// It runs with `make test-e2e`, which sets TIDEMARK_E2E=1 and installs the readers; a plain `go test` skips it.
package e2e

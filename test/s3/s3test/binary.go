package s3test

import "testing"

// Binary is the path of the server's binary, built if the cache does not have it, for a test that starts it in a way of
// its own.
func Binary(t testing.TB) string {
	t.Helper()
	return install(t)
}

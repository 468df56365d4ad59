// Package s3test runs a real S3 server, github.com/versity/versitygw, for tests, and a proxy in front of it that counts,
// delays, loses and changes requests.
//
// The server is installed once, at a pinned version, into .cache/ of the repository, which needs the Go module proxy.
// Tests that use it run only when TIDEMARK_S3_TESTS is set, and then they fail, rather than skip, if it cannot run.
package s3test

// Package etcdtest starts real etcd servers inside a test process.
//
// [Start] is what most tests want: a fresh single member on a random loopback port with ticks fast enough that it
// answers within tens of milliseconds, and a client for it. Both end with the test, so a test may check for leaked
// goroutines with goleak.VerifyTestMain, and no two tests ever share a key.
//
// [New] hands out the [Server] itself, for tests that stop it, wipe it, replace it by an empty one or fill it up.
// A server keeps its client address for life: a client that was dialled once finds it again after Restart and Wipe.
//
// The servers do not fsync and elect within tens of milliseconds. Everything else is etcd as it is in production: the
// shortest lease it grants is one second.
package etcdtest

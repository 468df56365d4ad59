// Package etcdtest starts real etcd servers, inside a test process or as processes of their own.
//
// [Start] is what most tests want: a fresh single member on a random loopback port with ticks fast enough that it
// answers within tens of milliseconds, and a client for it. Both end with the test, so a test may check for leaked
// goroutines with goleak.VerifyTestMain, and no two tests ever share a key.
//
// [New] hands out the [Server] itself, for tests that stop it, wipe it, replace it by an empty one or fill it up.
// A server keeps its client address for life: a client that was dialled once finds it again after Restart and Wipe.
//
// [NewCluster] starts several members as processes, which can be killed, on a network that can be cut link by link: a
// proxy stands before every member, towards its peers as well as its clients, and knows who speaks.
//
// The servers do not fsync and, inside the test process, elect within tens of milliseconds. Everything else is etcd as it is in production: the
// shortest lease it grants is one second.
package etcdtest

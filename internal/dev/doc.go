// Package dev is the whole of Tidemark in one process: `tidemark dev`, on an embedded etcd unless one is given, with a demo
// load if wanted, and `tidemark standalone`, which serves a root alone and keeps nothing but what is in it. Both run the
// very master and executors of the other binaries; only what surrounds them differs.
//
// A beacon file in a local root tells other commands where the etcd is, so that they need no flags; for a standalone
// server root.json does.
package dev

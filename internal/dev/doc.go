// Package dev is `tidemark dev`: the whole of Tidemark in one process, on an embedded etcd unless one is given, with a
// demo load if wanted. It runs the very master and executors of the other binaries; only what surrounds them differs.
//
// A beacon file in a local root tells other commands where the etcd is, so that they need no flags.
package dev

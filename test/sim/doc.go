// Package sim runs the whole of Tidemark, the real code of masters, executors and writers, in one process under virtual
// time, and lets a seed decide everything else: topology, load, the order and delay of every request to the store and to
// etcd, and what fails when.
//
// How it works:
//
//  1. All goroutines run in a testing/synctest bubble. Each request to the store or to etcd parks in the [world] (see
//     effect.go), which waits until every goroutine is idle and then lets exactly one event happen: a request arrives, or
//     its answer comes back.
//  2. When an event happens and how it ends is a hash of the seed, the process, the name of the request and how often
//     that process has made it. So leaving one fault out (shrink.go) does not change what becomes of the others.
//  3. A [process] is what can crash, pause, be cut off, and has a clock of its own, up to an hour wrong. A crashed process
//     sends nothing more; what it had sent may still arrive.
//  4. A [checker] sees every object as it lands in the store and every revision of etcd. It shares no code with the
//     system: it replays the Delta log and the manifests from their JSON and reads Parquet with pqarrow. It compares
//     with what the load's own books say was acknowledged.
//  5. At the end all faults heal, the load stops, and everything must become quiet: pending is zero, demand equals
//     storage, every acknowledged row is in its table once.
//
// One seed is replayed by TIDEMARK_SIM_SEED=n go test ./test/sim -run TestOneSeed -v.
package sim

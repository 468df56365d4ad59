// Package doctor examines a cluster and its root and says what is wrong and what to do about it: `tidemark doctor`.
//
//	storage.go   the root can be listed, its store keeps its promises, its clock, who may serve it, the default policy
//	etcd.go      every member answers, has a leader and space, raises no alarm, runs one version; the cluster's record
//	fleet.go     masters, slots, executors, their versions, drains of executors that are gone
//	work.go      due units that nobody takes, executions that take long, marks nobody knows, what needs a person
//	tables.go    tables that are paused, or that cannot be merged as they are
//
// It guarantees:
//   - Each check is on its own: one that cannot be made is a finding, and the others are made all the same.
//   - Nothing is changed, apart from the probe's few small objects under fresh names, which it deletes again.
//   - A finding that is wrong names a remedy.
//
// It reads; it decides nothing about scheduling. Thresholds are constants beside the checks that use them.
package doctor

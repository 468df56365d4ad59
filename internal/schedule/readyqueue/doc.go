// Package readyqueue carries a table's plan into the ready queue in etcd, and reads the queue back.
//
// A change of one table is one transaction: it deletes the ready keys that the new units replace, puts the new ones, and
// compares that every turn they cover is free and that the writer still owns the table's slot. So at most one ready unit
// covers a group, no unit is queued over a running execution, and a deposed owner cannot write. Deletions compare
// nothing but the slot: they are always harmless, and they pass when etcd is out of space.
package readyqueue

// Package process holds what every Tidemark binary does alike before and after its own work: reading flags and
// environment variables into one struct, opening the root and etcd, logging, turning signals into drain and
// cancellation, and mapping errors to exit statuses.
//
// Exit statuses: 0 the work is done, 1 it failed, 2 the command line is wrong. A failure is one line on standard
// error that says what is wrong, with which thing, and what to do.
package process

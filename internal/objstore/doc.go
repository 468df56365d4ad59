// Package objstore is the edge to object storage: a small set of operations whose conditional mutations end in exactly
// one of three outcomes, Applied, Refused or Unknown.
package objstore

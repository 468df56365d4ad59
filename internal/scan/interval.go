package scan

import "time"

// A busy table is scanned every five minutes, which bounds how long a lost publish can mislead. While scans find nothing
// new the interval doubles up to an hour: an idle table then costs one listing of its log and one of its shards an hour.
const (
	intervalMin = 300 * time.Second
	intervalMax = time.Hour
)

// NextInterval is the time from a scan to the next one of the same table. previous is 0 before the first.
func NextInterval(previous time.Duration, changed bool) time.Duration {
	if changed || previous < intervalMin {
		return intervalMin
	}
	return min(previous*2, intervalMax)
}

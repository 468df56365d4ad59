package deltalog

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Properties that Tidemark puts into a table's configuration.
const (
	PropertyMode        = "tidemark.mode"
	PropertyKey         = "tidemark.key"
	PropertySequence    = "tidemark.sequence"
	PropertyBuckets     = "tidemark.buckets"
	PropertyIncarnation = "tidemark.incarnation"
	PropertyState       = "tidemark.state"
	PropertyDropped     = "tidemark.dropped"
	PropertyPolicy      = "tidemark.policy." // a prefix

	modeUpsert = "upsert"
)

// Properties are the table properties of Delta that Tidemark follows.
type Properties struct {
	CheckpointInterval   int64         // versions between two checkpoints
	LogRetention         time.Duration // how long the log keeps versions below a checkpoint
	DeletedFileRetention time.Duration // how long removed files and their tombstones are kept
	CleanLog             bool          // delta.enableExpiredLogCleanup
	AppendOnly           bool          // rows may not be removed or changed
	IndexedColumns       int           // leaf columns with statistics; -1 means all
	TargetFileSize       int64         // bytes; 0 leaves it to the writer
}

// The protocol's defaults, except the checkpoint interval: it leaves that open, and 10 is Spark's.
const (
	checkpointIntervalDefault   = 10
	logRetentionDefault         = 30 * 24 * time.Hour
	deletedFileRetentionDefault = 7 * 24 * time.Hour
	indexedColumnsDefault       = 32

	// logRetentionMin: a commit trusts what it saw for up to ten minutes and a put for one, and all of that must be
	// far below what a cleanup may take away.
	logRetentionMin = time.Hour
	// deletedFileRetentionMin: an execution may not commit any more at half of this age.
	deletedFileRetentionMin = 20 * time.Minute
)

// ParseProperties reads a table's configuration. A value that cannot be parsed is an error that names its property.
func ParseProperties(configuration map[string]string) (Properties, error) {
	p := Properties{
		CheckpointInterval: checkpointIntervalDefault, LogRetention: logRetentionDefault,
		DeletedFileRetention: deletedFileRetentionDefault, CleanLog: true, IndexedColumns: indexedColumnsDefault,
	}
	var failed error
	read := func(name string, parse func(string) error) {
		if text, ok := configuration[name]; ok && failed == nil {
			if err := parse(strings.TrimSpace(text)); err != nil {
				failed = fmt.Errorf("property %s is %q: %w", name, text, err)
			}
		}
	}
	read("delta.checkpointInterval", func(s string) (err error) {
		p.CheckpointInterval, err = positive(s)
		return err
	})
	read("delta.logRetentionDuration", func(s string) (err error) {
		p.LogRetention, err = ParseInterval(s)
		return err
	})
	read("delta.deletedFileRetentionDuration", func(s string) (err error) {
		p.DeletedFileRetention, err = ParseInterval(s)
		return err
	})
	read("delta.enableExpiredLogCleanup", func(s string) (err error) {
		p.CleanLog, err = boolean(s)
		return err
	})
	read("delta.appendOnly", func(s string) (err error) {
		p.AppendOnly, err = boolean(s)
		return err
	})
	read("delta.dataSkippingNumIndexedCols", func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < -1 {
			return fmt.Errorf("want a number of columns, or -1 for all")
		}
		p.IndexedColumns = int(n)
		return nil
	})
	read("delta.targetFileSize", func(s string) (err error) {
		p.TargetFileSize, err = parseSize(s)
		return err
	})
	return p, failed
}

func positive(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("want a whole number above zero")
	}
	return n, nil
}

func boolean(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("want true or false")
}

var sizeUnits = map[string]int64{"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}

// parseSize reads bytes as Spark writes them: 134217728, 128mb, 1g.
func parseSize(s string) (int64, error) {
	digits := strings.TrimRight(strings.ToLower(s), "bkmg")
	unit, ok := sizeUnits[strings.ToLower(s)[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 1 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("want a size in bytes, or with the unit kb, mb or gb")
	}
	return n * unit, nil
}

var intervalUnits = map[string]time.Duration{
	"nanosecond": time.Nanosecond, "microsecond": time.Microsecond, "millisecond": time.Millisecond,
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
}

var errInterval = errors.New(`want an interval such as "interval 7 days", in units from nanoseconds to weeks`)

// ParseInterval reads an interval as Delta writes it: "interval 7 days", "interval 1 week 12 hours". The word interval
// may be missing. Months and years are no fixed time and are refused, as other engines do.
func ParseInterval(s string) (time.Duration, error) {
	words := strings.Fields(strings.ToLower(s))
	if len(words) > 0 && words[0] == "interval" {
		words = words[1:]
	}
	if len(words) == 0 || len(words)%2 != 0 {
		return 0, errInterval
	}
	var total time.Duration
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		unit, ok := intervalUnits[strings.TrimSuffix(words[i+1], "s")]
		if err != nil || !ok || n < 0 {
			return 0, errInterval
		}
		if n > int64(math.MaxInt64-total)/int64(unit) {
			return 0, fmt.Errorf("longer than %d years", int64(math.MaxInt64/(365*24*time.Hour)))
		}
		total += time.Duration(n) * unit
	}
	return total, nil
}

package deltalog

import (
	"strings"
	"testing"
	"time"
)

func TestParseInterval(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"interval 7 days":              7 * 24 * time.Hour,
		"INTERVAL 1 WEEK":              7 * 24 * time.Hour,
		"interval 1 week 12 hours":     7*24*time.Hour + 12*time.Hour,
		"20 minutes":                   20 * time.Minute,
		"interval  5 seconds":          5 * time.Second,
		"interval 1500 milliseconds":   1500 * time.Millisecond,
		"interval 3 microseconds":      3 * time.Microsecond,
		"interval 0 days":              0,
		"interval 100000 days 1 hours": 100000*24*time.Hour + time.Hour,
	} {
		if got, err := ParseInterval(text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "interval", "7", "interval days 7", "interval 1 month", "interval 1 year", "interval -1 days",
		"interval 1.5 days", "interval 9223372036854775807 weeks", "interval 106751 days 106751 days", "7d"} {
		if got, err := ParseInterval(bad); err == nil {
			t.Errorf("%q is %v, want an error", bad, got)
		}
	}
}

func TestPropertiesHaveTheProtocolsDefaults(t *testing.T) {
	p, err := ParseProperties(nil)
	want := Properties{CheckpointInterval: 10, LogRetention: 30 * 24 * time.Hour, DeletedFileRetention: 7 * 24 * time.Hour, CleanLog: true, IndexedColumns: 32}
	if err != nil || p != want {
		t.Errorf("got %+v, %v", p, err)
	}
	p, err = ParseProperties(map[string]string{
		"delta.checkpointInterval": "25", "delta.logRetentionDuration": "interval 2 days", "delta.enableExpiredLogCleanup": "FALSE",
		"delta.deletedFileRetentionDuration": "interval 36 hours", "delta.appendOnly": "true",
		"delta.dataSkippingNumIndexedCols": "-1", "delta.targetFileSize": "64MB", "other.property": "x",
	})
	want = Properties{CheckpointInterval: 25, LogRetention: 48 * time.Hour, DeletedFileRetention: 36 * time.Hour, AppendOnly: true, IndexedColumns: -1, TargetFileSize: 64 << 20}
	if err != nil || p != want {
		t.Errorf("got %+v, %v", p, err)
	}
	for name, value := range map[string]string{
		"delta.checkpointInterval": "0", "delta.logRetentionDuration": "a while", "delta.appendOnly": "maybe",
		"delta.dataSkippingNumIndexedCols": "-2", "delta.targetFileSize": "12 parsecs",
	} {
		if _, err := ParseProperties(map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s = %q: %v", name, value, err)
		}
	}
}

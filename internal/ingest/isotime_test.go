package ingest

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDatesAreTheCalendarsOfPackageTime(t *testing.T) {
	day := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	for ; day.Year() < 10_000; day = day.AddDate(0, 0, 5) { // 146,097 days a cycle, so every date of one is met
		text := day.Format(time.DateOnly)
		if got, ok := parseDate([]byte(text)); !ok || int64(got) != day.Unix()/86_400 {
			t.Fatalf("%s: got day %d (%v), expected %d", text, got, ok, day.Unix()/86_400)
		}
	}
	for _, text := range []string{"0000-01-01", "2023-02-29", "1900-02-29", "2024-13-01", "2024-00-01", "2024-04-31", "2024-01-00", "2024-1-01", "2024/01/01", "+024-01-01", "2024-01-01 "} {
		if _, ok := parseDate([]byte(text)); ok {
			t.Errorf("%q was taken for a date", text)
		}
	}
}

func TestTimestampsAreReadAsPackageTimeWritesThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.Int64Range(-62_135_510_400_000_000, 253_402_214_400_000_000).Draw(t, "micros")
		at := time.UnixMicro(micros).UTC()
		layout := rapid.SampledFrom([]string{"2006-01-02T15:04:05.999999", "2006-01-02 15:04:05.000000", "2006-01-02T15:04:05.999999Z07:00", "2006-01-02 15:04:05.999999Z0700"}).Draw(t, "layout")
		zoned := len(layout) > len("2006-01-02T15:04:05.999999")
		if zoned {
			at = at.In(time.FixedZone("", 60*rapid.IntRange(-18*60, 18*60).Draw(t, "offset")))
		}
		got, gotZoned, ok := parseTimestamp([]byte(at.Format(layout)))
		if !ok || got != micros || gotZoned != zoned {
			t.Fatalf("%s: got %d, zoned %v (%v), expected %d", at.Format(layout), got, gotZoned, ok, micros)
		}
	})
	for _, text := range []string{"2024-01-01T24:00", "2024-01-01T10:60", "2024-01-01T10:00:60", "2024-01-01T10:00:00.", "2024-01-01T10:00:00.1234567",
		"2024-01-01T10:00:00+1", "2024-01-01T10:00:00+19:00", "2024-01-01T10:00:00z", "2024-01-01t10:00", "2024-01-01T10:0", "2024-02-30T10:00"} {
		if _, _, ok := parseTimestamp([]byte(text)); ok {
			t.Errorf("%q was taken for a timestamp", text)
		}
	}
}

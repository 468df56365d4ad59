package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// listFlags are those of everything that lists.
type listFlags struct {
	JSON bool `name:"json" help:"Print JSON for programs instead of a table for people."`
}

// printList writes rows as one JSON array, or aligned under a header.
func printList[T any](w io.Writer, f listFlags, header []string, rows []T, line func(T) []string) error {
	if f.JSON {
		if rows == nil {
			rows = []T{} // an empty list is [], not null
		}
		return printJSON(w, rows)
	}
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(aligned, strings.Join(header, "\t"))
	for _, row := range rows {
		fmt.Fprintln(aligned, strings.Join(line(row), "\t"))
	}
	return aligned.Flush()
}

func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// bytesText writes a size for people, in powers of 1024.
func bytesText(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n)/1024, 0
	for ; size >= 1024 && unit < len(units)-1; unit++ {
		size /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", size, units[unit])
}

// countText writes a count with thousands separated.
func countText[N int | int64 | uint64](n N) string {
	digits := fmt.Sprint(n)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// countedText writes a count with what is counted, in the singular or the plural.
func countedText[N int | int64 | uint64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return countText(n) + " " + one + "s"
}

// waitText writes how long something has waited.
func waitText(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// listText is a list for a cell.
func listText(parts []string) string {
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ",")
}

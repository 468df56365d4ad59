package web

import (
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidemark/internal/control"
	"tidemark/internal/observe"
	"tidemark/internal/schedule"
)

var funcs = template.FuncMap{
	"count": countAny, "size": size, "ago": ago, "age": age, "rate": rate, "clock": clockText, "path": url.PathEscape, "query": url.QueryEscape,
	"percent": percent, "until": until, "short": short, "humanVerdict": humanVerdict, "join": strings.Join, "reasons": reasons,
	"add1":        func(n int) int { return n + 1 },
	"minus1":      func(n int) int { return n - 1 },
	"millis":      func(ms int64) string { return span(time.Duration(ms) * time.Millisecond) },
	"thousandths": func(f float64) int64 { return per(int64(f*1000), 1000) },
	"per":         per,
	"perInt":      func(part, whole int) int64 { return per(int64(part), int64(whole)) },
	"perGen":      func(part uint64, whole int64) int64 { return per(int64(part), whole) },
	"withFailure": func(v view, f observe.Failure) failureView { return failureView{f, v.NowMS, v.CanAct} },
	"withTurn":    func(v view, t observe.Turn) turnView { return turnView{t, v.NowMS, v.CanAct} },
	"column":      func(list sorter, name, text, class string) columnView { return columnView{list, name, text, class} },
}

// failureView, turnView and columnView are what the parts of those names get.
type failureView struct {
	F      observe.Failure
	NowMS  int64
	CanAct bool
}

type turnView struct {
	T      observe.Turn
	NowMS  int64
	CanAct bool
}

type columnView struct {
	List              sorter
	Name, Text, Class string
}

// sorter is a list that can be put in another order.
type sorter interface {
	SortBy(name string) string
	Sorted(name string) string
}

// reason is why some shards are, or are not, being merged.
type reason struct {
	Subject string
	Code    schedule.Code
	Reason  string
}

// reasonsMax bounds how many are shown; shards with the same reason are one.
const reasonsMax = 12

func reasons(x control.Explanation) []reason {
	var all []reason
	names, count := map[reason]string{}, map[reason]int{}
	for _, s := range x.Shards {
		if s.Code == schedule.CodeCaughtUp {
			continue
		}
		r := reason{Code: s.Code, Reason: s.Reason}
		if count[r]++; count[r] == 1 {
			all, names[r] = append(all, r), s.Shard
		}
	}
	slices.SortStableFunc(all, func(a, b reason) int { return count[b] - count[a] })
	all = all[:min(len(all), reasonsMax)]
	for i, r := range all {
		all[i].Subject = names[r]
		if n := count[r]; n > 1 {
			all[i].Subject = countAny(n) + " shards"
		}
	}
	return all
}

// countAny writes any whole number with its thousands apart.
func countAny(n any) string {
	switch n := n.(type) {
	case int:
		return count(int64(n))
	case int64:
		return count(n)
	case uint64:
		return count(int64(n))
	}
	return fmt.Sprint(n)
}

// count writes a whole number with its thousands apart.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// size writes bytes in powers of 1024.
func size(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if f >= 100 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// span writes a time in its two largest units.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}

// age writes how long ago a moment was, nothing for none.
func age(nowMS, ms int64) string {
	if ms == 0 {
		return "–"
	}
	return span(time.Duration(nowMS-ms) * time.Millisecond)
}

// ago is age as a phrase.
func ago(nowMS, ms int64) string {
	if ms == 0 {
		return "–"
	}
	return age(nowMS, ms) + " ago"
}

// until writes how soon a moment is.
func until(nowMS, ms int64) string {
	switch {
	case ms == 0:
		return "–"
	case ms <= nowMS:
		return "now"
	}
	return "in " + span(time.Duration(ms-nowMS)*time.Millisecond)
}

// clockText writes a moment.
func clockText(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05 UTC")
}

// rate writes rows a second.
func rate(f float64) string {
	switch {
	case f < 0.05:
		return "0"
	case f < 10:
		return fmt.Sprintf("%.1f", f)
	}
	return count(int64(f))
}

// percent writes a fraction.
func percent(f float64) string { return fmt.Sprintf("%.0f %%", f*100) }

// per is a part of a whole in thousandths, for drawing.
func per(part, whole int64) int64 {
	if whole <= 0 || part <= 0 {
		return 0
	}
	return min(int64(float64(part)/float64(whole)*1000+0.5), 1000)
}

// short is the beginning of an id.
func short(id string) string {
	if len(id) > 10 {
		return id[:10]
	}
	return id
}

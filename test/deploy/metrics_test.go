package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// expression is one PromQL expression and where it stands.
type expression struct{ where, promql string }

// dashboard is what the tests look at of a dashboard.
type dashboard struct {
	UID    string `json:"uid"`
	Title  string `json:"title"`
	Panels []struct {
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct{ H, W, X, Y int }
		Targets []struct {
			Expr       string `json:"expr"`
			Legend     string `json:"legendFormat"`
			Datasource struct {
				UID string `json:"uid"`
			} `json:"datasource"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	paths, err := filepath.Glob(checkout("deploy", "grafana", "*.json"))
	if err != nil || len(paths) != 3 {
		t.Fatalf("dashboards: %v, %v", paths, err)
	}
	all := map[string]dashboard{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[filepath.Base(path)] = d
	}
	return all
}

// expressions are all that rules, dashboards and the autoscaler's adapter ask for.
func expressions(t *testing.T) []expression {
	t.Helper()
	var all []expression
	for _, r := range rules(t) {
		all = append(all, expression{"alert " + r.Alert, r.Expr})
	}
	for name, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				all = append(all, expression{name + ": " + p.Title, target.Expr})
			}
		}
	}
	for _, m := range regexp.MustCompile(`metricsQuery: '(.*)'`).FindAllStringSubmatch(read(t, "deploy", "kubernetes", "autoscaling.yaml"), -1) {
		all = append(all, expression{"autoscaling.yaml", strings.ReplaceAll(m[1], ",<<.LabelMatchers>>", "")})
	}
	return all
}

// TestDashboardsHangTogether: variables that are used exist, legends name labels that their expression keeps, and panels
// do not overlap.
func TestDashboardsHangTogether(t *testing.T) {
	variable := regexp.MustCompile(`\$\{?([a-z]+)\}?`)
	label := regexp.MustCompile(`\{\{(\w+)\}\}`)
	uids := map[string]string{}
	for name, d := range dashboards(t) {
		if other, taken := uids[d.UID]; taken || d.UID == "" {
			t.Errorf("%s has the uid %q of %s", name, d.UID, other)
		}
		uids[d.UID] = name
		known := map[string]bool{}
		for _, v := range d.Templating.List {
			known[v.Name] = true
		}
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if other := taken[at]; other != "" || at[0] > 23 {
						t.Fatalf("%s: %q lies over %q, or beyond the edge", name, p.Title, other)
					}
					taken[at] = p.Title
				}
			}
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("%s: %q shows nothing", name, p.Title)
			}
			for _, target := range p.Targets {
				for _, m := range variable.FindAllStringSubmatch(target.Expr+" "+target.Datasource.UID, -1) {
					if !known[m[1]] {
						t.Errorf("%s: %q uses $%s, which is no variable of it", name, p.Title, m[1])
					}
				}
				for _, m := range label.FindAllStringSubmatch(target.Legend, -1) {
					if !regexp.MustCompile(`by \([^)]*\b` + m[1] + `\b`).MatchString(target.Expr) {
						t.Errorf("%s: %q has %s in its legend and not in its expression", name, p.Title, m[1])
					}
				}
			}
		}
	}
}

var (
	quoted      = regexp.MustCompile(`"[^"]*"`)
	selector    = regexp.MustCompile(`\b((?:tidemark|process|go|etcd)_[a-z0-9_]+)(\{[^}]*\})?`)
	matcher     = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	grouping    = regexp.MustCompile(`\bby \(([^)]*)\)`)
	addedByScr  = map[string]bool{"instance": true, "job": true, "namespace": true}
	bucketNames = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// unexposed are the metrics and labels of expressions that nothing exposes, each with where it is used.
func unexposed(expressions []expression, exposed map[string]series) []string {
	missing := map[string]bool{}
	for _, e := range expressions {
		labels := map[string]bool{}
		for _, m := range selector.FindAllStringSubmatch(e.promql, -1) {
			metric, ok := exposed[m[1]]
			if !ok {
				missing[e.where+": "+m[1]] = true
				continue
			}
			for l := range metric {
				labels[l] = true
			}
			for _, match := range matcher.FindAllStringSubmatch(m[2], -1) {
				values, ok := metric[match[1]]
				switch {
				case addedByScr[match[1]]:
				case !ok:
					missing[e.where+": "+m[1]+" has no label "+match[1]] = true
				case match[2] == "=" && !values[match[3]]:
					missing[e.where+": "+m[1]+" never has "+match[0]] = true
				}
			}
		}
		for _, m := range grouping.FindAllStringSubmatch(quoted.ReplaceAllString(e.promql, `""`), -1) {
			for _, l := range strings.Split(m[1], ",") {
				if l = strings.TrimSpace(l); !labels[l] && !addedByScr[l] {
					missing[e.where+": no metric of it has the label "+l] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// series are the labels of a metric, and their values.
type series map[string]map[string]bool

var sample = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)

// exposition adds what an answer of /metrics exposes.
func exposition(exposed map[string]series, text string) {
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		s := exposed[m[1]]
		if s == nil {
			s = series{}
			exposed[m[1]] = s
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if s[l[1]] == nil {
				s[l[1]] = map[string]bool{}
			}
			s[l[1]][l[3]] = true
		}
	}
}

// undocumented are the metrics that docs/operations.md does not name, and unknown those that it names and nothing exposes.
func compareReference(reference string, exposed map[string]series) (undocumented, unknown []string) {
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(tidemark_[a-z0-9_]+)`").FindAllStringSubmatch(reference, -1) {
		named[m[1]] = true
	}
	there := map[string]bool{}
	for name := range exposed {
		if strings.HasPrefix(name, "tidemark_") {
			if base := bucketNames.ReplaceAllString(name, ""); exposed[base+"_bucket"] != nil {
				name = base
			}
			there[name] = true
			if !named[name] {
				undocumented = append(undocumented, name)
			}
		}
	}
	for name := range named {
		if !there[name] {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(undocumented)
	slices.Sort(unknown)
	return slices.Compact(undocumented), unknown
}

func TestExposedLabelsAreTold(t *testing.T) {
	exposed := map[string]series{}
	exposition(exposed, "# HELP tidemark_a A.\ntidemark_a{class=\"x\",how=\"y\"} 1\ntidemark_b 2\n")
	got := unexposed([]expression{
		{"fine", `sum by (class) (rate(tidemark_a{how="y",instance=~"z"}[1m])) / tidemark_b`},
		{"metric", `tidemark_c`}, {"label", `tidemark_a{colour="y"}`}, {"value", `tidemark_a{how="n"}`}, {"grouping", `sum by (tone) (tidemark_b)`},
	}, exposed)
	want := []string{"grouping: no metric of it has the label tone", "label: tidemark_a has no label colour", "metric: tidemark_c", `value: tidemark_a never has how="n"`}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

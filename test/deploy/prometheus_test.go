package deploy

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const promtool = "promtool comes with the package prometheus: apt-get install prometheus"

// rules are the alerts of rules.yml.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "deploy", "prometheus", "rules.yml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("rules.yml has no rules")
	}
	return all
}

func TestRulesPassTheirUnitTests(t *testing.T) {
	path := tool(t, "promtool", promtool)
	for _, args := range [][]string{{"check", "config", "prometheus.yml"}, {"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Dir = checkout("deploy", "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// An alert that nobody has seen fire may never fire, and one that leads nowhere helps nobody.
func TestEveryAlertIsTestedAndLeadsToTheRunbook(t *testing.T) {
	tests := read(t, "deploy", "prometheus", "rules_test.yml")
	anchors := anchorsOf(read(t, "docs", "runbook.md"))
	for _, r := range rules(t) {
		if n := len(regexp.MustCompile(`(?m)^ +- alertname: `+r.Alert+`$`).FindAllString(tests, -1)); n == 0 {
			t.Errorf("%s: no unit test sees it fire", r.Alert)
		}
		page, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		if page != "docs/runbook.md" || !anchors[anchor] {
			t.Errorf("%s: runbook_url %q leads to no section", r.Alert, r.Annotations["runbook_url"])
		}
		if r.Annotations["summary"] == "" || r.Labels["severity"] != "page" && r.Labels["severity"] != "ticket" {
			t.Errorf("%s: without a summary or a severity", r.Alert)
		}
	}
}

var heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)

// anchorsOf are the anchors of a page's headings, as GitHub makes them.
func anchorsOf(markdown string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(markdown, -1) {
		text := strings.ToLower(strings.TrimSpace(m[1]))
		text = regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(text, "")
		anchors[strings.ReplaceAll(text, " ", "-")] = true
	}
	return anchors
}

var markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Links between the pages, and from pages to files, lead somewhere.
func TestLinksOfTheDocsLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		text := read(t, page)
		for _, m := range markdownLink.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if matches, _ := filepath.Glob(checkout(path)); len(matches) == 0 {
				t.Errorf("%s: %s does not exist", page, m[1])
			} else if anchor != "" && strings.HasSuffix(path, ".md") && !anchorsOf(read(t, path))[anchor] {
				t.Errorf("%s: %s has no such section", page, m[1])
			}
		}
	}
}

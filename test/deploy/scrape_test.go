package deploy

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// startPrometheus starts Prometheus with the configuration that is shipped, with the hosts and the pace replaced, and
// returns where it answers; "" if there is none on this machine and that is allowed.
func (d *deployment) startPrometheus(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("TIDEMARK_REQUIRE_ALL") != "" {
			t.Fatalf("%v: apt-get install prometheus", err)
		}
		t.Logf("without Prometheus: %v", err)
		return ""
	}
	if err := os.Symlink(program, filepath.Join(d.path, "prometheus")); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(d.dir, "config", "prometheus")
	if err := os.MkdirAll(config, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"prometheus.yml", "rules.yml"} {
		text := read(t, "deploy", "prometheus", name)
		if name == "prometheus.yml" {
			text = d.localise(t, "prometheus", strings.ReplaceAll(text, "15s", "1s"))
		}
		if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	address := d.address(t, "prometheus", "9090")
	// The image's command names the program by its entrypoint, and its default address is the container's.
	s := d.project.Services["prometheus"]
	s.Entrypoint = []string{"prometheus"}
	d.project.Services["prometheus"] = s
	d.start(t, "prometheus", "--web.listen-address="+address)
	return "http://" + address
}

// answer is what Prometheus answers with.
type answer[T any] struct {
	Status string
	Error  string
	Data   T
}

func ask[T any](t *testing.T, url string) T {
	t.Helper()
	var a answer[T]
	if err := json.Unmarshal([]byte(fetch(t, url)), &a); err != nil || a.Status != "success" {
		t.Fatalf("%s: %v %s", url, err, a.Error)
	}
	return a.Data
}

// empty are panels that show nothing while all is well.
var empty = []string{"outcome!~", "result=~"}

func (d *deployment) checkPrometheus(t *testing.T, prometheus string) {
	t.Helper()
	var why error
	d.eventually(t, "Prometheus", func() bool {
		_, why = try(t, prometheus+"/-/ready")
		return why == nil
	}, func() string { return why.Error() })
	type targets struct {
		ActiveTargets []struct{ Health, LastError, ScrapeURL string }
	}
	var last targets
	d.eventually(t, "all targets", func() bool {
		last = ask[targets](t, prometheus+"/api/v1/targets")
		up := 0
		for _, target := range last.ActiveTargets {
			if target.Health == "up" {
				up++
			}
		}
		return up == 8 // three of etcd, two masters, three executors
	}, func() string { b, _ := json.Marshal(last); return string(b) })

	type groups struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError, State string
			}
		}
	}
	evaluated := 0
	d.eventually(t, "all rules to be evaluated", func() bool {
		evaluated = 0
		for _, g := range ask[groups](t, prometheus+"/api/v1/rules").Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					t.Fatalf("rule %s: %s", r.Name, r.LastError)
				}
				if r.State == "firing" {
					t.Errorf("alert %s fires on a deployment that is well", r.Name)
				}
				if r.Health == "ok" {
					evaluated++
				}
			}
		}
		return evaluated == len(rules(t))
	}, func() string { return "" })

	for _, e := range expressions(t) {
		promql := strings.NewReplacer("$instance", ".*", "$table", ".*").Replace(e.promql)
		type result struct{ Result []json.RawMessage }
		quiet := strings.HasPrefix(e.where, "alert ") || slices.ContainsFunc(empty, func(part string) bool { return strings.Contains(e.promql, part) })
		// A rate needs a second scrape.
		d.eventually(t, "a result of "+e.where+": "+promql, func() bool {
			return len(ask[result](t, prometheus+"/api/v1/query?query="+url.QueryEscape(promql)).Result) > 0 || quiet
		}, func() string { return "it finds nothing" })
	}
}

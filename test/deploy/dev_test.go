package deploy

import (
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// onlyS3 is what a root on a local disk cannot expose.
var onlyS3 = regexp.MustCompile(`tidemark_s3_`)

// TestWhatRulesAndDashboardsUseIsExposedByDev: `tidemark dev` is where people look at dashboards first.
func TestWhatRulesAndDashboardsUseIsExposedByDev(t *testing.T) {
	slow(t)
	d := &deployment{running: map[string]*process{}}
	cmd := exec.Command(built(t, "tidemark"), "dev", "--root", t.TempDir(), "--listen", "127.0.0.1:0", "--demo", "--demo-rate", "5000")
	p := &process{cmd: cmd, log: &lockedBuffer{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.done); p.err = cmd.Wait() }()
	d.running["dev"] = p
	defer func() { _ = cmd.Process.Kill(); <-p.done }()

	serves := regexp.MustCompile(`http://(127\.0\.0\.1:\d+)`)
	d.eventually(t, "its address", func() bool { return serves.MatchString(p.log.String()) }, func() string { return "" })
	address := serves.FindStringSubmatch(p.log.String())[1]
	var wanted []expression
	for _, e := range expressions(t) {
		if !onlyS3.MatchString(e.promql) {
			wanted = append(wanted, e)
		}
	}
	var missing []string
	d.eventually(t, "all metrics", func() bool {
		exposed := map[string]series{}
		exposition(exposed, fetch(t, "http://"+address+"/metrics"))
		missing = unexposed(wanted, exposed)
		return len(missing) == 0
	}, func() string { return strings.Join(missing, "; ") })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.finish(t, p)
}

package deploy

import (
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var (
	// onlyS3 is what a root on a local disk cannot expose.
	onlyS3 = regexp.MustCompile(`tidemark_s3_`)
	// onlyStandalone is what only `tidemark standalone` exposes.
	onlyStandalone = regexp.MustCompile(`tidemark_root_lease_seconds`)
)

// TestWhatRulesAndDashboardsUseIsExposedByDev: `tidemark dev` is where people look at dashboards first.
func TestWhatRulesAndDashboardsUseIsExposedByDev(t *testing.T) {
	slow(t)
	exposes(t, func(e expression) bool { return !onlyS3.MatchString(e.promql) && !onlyStandalone.MatchString(e.promql) },
		"dev", "--root", t.TempDir(), "--demo", "--demo-rate", "5000")
}

func TestWhatRulesUseOfAStandaloneServerIsExposedByIt(t *testing.T) {
	slow(t)
	exposes(t, func(e expression) bool { return onlyStandalone.MatchString(e.promql) }, "standalone", "--root", t.TempDir())
}

// exposes runs a command of tidemark that serves until it exposes what the wanted expressions use.
func exposes(t *testing.T, want func(expression) bool, command ...string) {
	t.Helper()
	d := &deployment{running: map[string]*process{}}
	cmd := exec.Command(built(t, "tidemark"), append(command, "--listen", "127.0.0.1:0")...)
	p := &process{cmd: cmd, log: &lockedBuffer{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.done); p.err = cmd.Wait() }()
	d.running[command[0]] = p
	defer func() { _ = cmd.Process.Kill(); <-p.done }()

	serves := regexp.MustCompile(`http://(127\.0\.0\.1:\d+)`)
	d.eventually(t, "its address", func() bool { return serves.MatchString(p.log.String()) }, func() string { return "" })
	address := serves.FindStringSubmatch(p.log.String())[1]
	var wanted []expression
	for _, e := range expressions(t) {
		if want(e) {
			wanted = append(wanted, e)
		}
	}
	if len(wanted) == 0 {
		t.Fatal("nothing is wanted of it")
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

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// checkout is the path of a file of the checkout.
func checkout(path ...string) string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(here), "..", ".."}, path...)...)
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(checkout(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// slow skips a test that starts processes, unless make test-deploy asks for it.
func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("TIDEMARK_DEPLOY_TESTS") == "" {
		t.Skip("set TIDEMARK_DEPLOY_TESTS=1, or use `make test-deploy`")
	}
}

// tool is the path of a program that the machine may not have.
func tool(t *testing.T, name, remedy string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("TIDEMARK_REQUIRE_ALL") != "" {
		t.Fatalf("%v: %s", err, remedy)
	}
	if err != nil {
		t.Skipf("%v: %s", err, remedy)
	}
	return path
}

// built is the path of a binary that `make build` makes.
func built(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(checkout("bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `make build bin/etcd` first, as `make test-deploy` does", err)
	}
	return path
}

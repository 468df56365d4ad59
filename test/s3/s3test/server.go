package s3test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sys/unix"
)

// Version is the server's version. Conditional writes are atomic from here on.
const Version = "v1.8.0"

// The server's only account. It lives as long as the test.
const (
	AccessKey = "tidemark-test"
	SecretKey = "tidemark-test-secret"
	Region    = "us-east-1"
)

// Server is a running S3 server with one empty bucket on a random port of the loopback interface.
type Server struct {
	Endpoint string // http://127.0.0.1:port
	Bucket   string

	prefixes atomic.Int64
}

// Start starts a server and stops it when the test ends. It sets the credentials in the test's environment.
func Start(t testing.TB) *Server {
	t.Helper()
	if os.Getenv("TIDEMARK_S3_TESTS") == "" {
		t.Skip("set TIDEMARK_S3_TESTS=1 to run against a real S3 server (versitygw " + Version + ", installed into .cache/)")
	}
	binary := install(t)
	Environment(t)
	dir := t.TempDir()
	// Another process may take the port between our looking and the server's listening; then another one is tried.
	for range 5 {
		address := freeAddress(t)
		s := &Server{Endpoint: "http://" + address, Bucket: "tidemark"}
		if s.run(t, binary, dir, address) {
			s.createBucket(t)
			return s
		}
	}
	t.Fatal("versitygw did not start on any of five ports")
	return nil
}

// Environment sets the server's credentials in the test's environment, and keeps the machine's own away.
func Environment(t testing.TB) {
	for _, setting := range Env() {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
}

// Env is the environment that a process needs to reach the server, for exec.Cmd.
func Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey, "AWS_SESSION_TOKEN=", "AWS_REGION=" + Region,
		"AWS_PROFILE=", "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
	}
}

// Root returns the URL of a root that nobody has used yet.
func (s *Server) Root() string {
	return fmt.Sprintf("s3://%s/root-%d", s.Bucket, s.prefixes.Add(1))
}

// Client returns a plain client of the server, past all of Tidemark's code.
func (s *Server) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &s.Endpoint, UsePathStyle: true, Region: Region,
		Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
	})
}

func (s *Server) createBucket(t testing.TB) {
	t.Helper()
	if _, err := s.Client().CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String(s.Bucket)}); err != nil {
		t.Fatal(err)
	}
}

// run starts the server and waits until it answers. It reports false if the server has ended instead.
func (s *Server) run(t testing.TB, binary, dir, address string) bool {
	t.Helper()
	var output bytes.Buffer
	cmd := exec.Command(binary, "--quiet", "--keep-alive", "--port", address, "--access", AccessKey, "--secret", SecretKey, "--region", Region, "posix", dir)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		// The death signal is bound to the thread that starts the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			t.Cleanup(stop)
			return true
		}
		select {
		case <-ended:
			t.Logf("versitygw has ended: %s", output.String())
			return false
		case <-t.Context().Done():
			stop()
			t.Fatal("versitygw did not answer")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// install returns the server's binary, building it if the cache does not have it.
func install(t testing.TB) string {
	t.Helper()
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("finding the repository: %v", err)
	}
	dir := filepath.Join(filepath.Dir(strings.TrimSpace(string(gomod))), ".cache", "versitygw-"+Version)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	// Packages are tested in parallel: one builds, the others wait.
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "versitygw")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	cmd := exec.Command("go", "install", "github.com/versity/versitygw/cmd/versitygw@"+Version)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("installing versitygw %s: %v\n%s", Version, err, output)
	}
	return binary
}

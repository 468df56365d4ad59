package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func replace(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestTokensThatAreTakenOutOfTheFileEndAtOnceAndABrokenFileChangesNothing(t *testing.T) {
	const ada, bob = "ada-0123456789abcdef", "bob-0123456789abcdef"
	path := filepath.Join(t.TempDir(), "tokens")
	replace(t, path, "ada operator "+ada+"\n")
	tokens, err := ReadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	server, err := Listen("127.0.0.1:0", Options{Subject: subject{}, Metrics: metrics, Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	holds := func(step string, adaHolds, bobHolds bool, stale float64) {
		t.Helper()
		if _, ok := tokens.Identify(ada); ok != adaHolds {
			t.Errorf("%s: ada's token holds: %v", step, ok)
		}
		if _, ok := tokens.Identify(bob); ok != bobHolds {
			t.Errorf("%s: bob's token holds: %v", step, ok)
		}
		if got := gauge(t, metrics, "tidemark_http_files_stale"); got != stale {
			t.Errorf("%s: tidemark_http_files_stale is %v", step, got)
		}
	}
	holds("at first", true, false, 0)
	replace(t, path, "bob viewer "+bob+"\n")
	holds("replaced", false, true, 0)
	replace(t, path, "bob owner "+bob+"\nada")
	holds("broken", false, true, 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	holds("gone", false, true, 1)
	replace(t, path, "ada operator "+ada+"\nbob viewer "+bob+"\n")
	holds("mended", true, true, 0)
}

func gauge(t *testing.T, metrics *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestACertificateThatIsReplacedServesTheNextHandshake(t *testing.T) {
	dir := t.TempDir()
	authority, authorityFiles := certify(t, dir, "authority", nil)
	other, otherFiles := certify(t, dir, "other-authority", nil)
	first, files := certify(t, dir, "server", &authority)
	client, _ := certify(t, dir, "client", &other)
	server, err := Listen("127.0.0.1:0", Options{Subject: subject{}, Metrics: prometheus.NewRegistry(), TLS: files})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	defer func() { stop(); <-done }()

	roots := x509.NewCertPool()
	roots.AddCert(authority.Leaf)
	shown := func() *x509.Certificate {
		t.Helper()
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport}).Get(server.URL() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_ = read(t, resp.Body)
		if resp.ProtoMajor != 2 {
			t.Errorf("it speaks %s", resp.Proto)
		}
		return resp.TLS.PeerCertificates[0]
	}
	if !shown().Equal(first.Leaf) {
		t.Error("another certificate is shown")
	}
	if err := os.WriteFile(files.Certificate, []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !shown().Equal(first.Leaf) {
		t.Error("a broken file took the certificate away")
	}
	second, _ := certify(t, dir, "server", &authority)
	if !shown().Equal(second.Leaf) {
		t.Error("the certificate that was replaced is still shown")
	}

	// The authority of clients is read again too.
	asked := TLSFiles{Certificate: files.Certificate, Key: files.Key, ClientCA: filepath.Join(dir, "clients")}
	replace(t, asked.ClientCA, text(t, authorityFiles.Certificate))
	config, stale, err := asked.config()
	if err != nil {
		t.Fatal(err)
	}
	verifies := func() bool {
		c, err := config.GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Leaf.Verify(x509.VerifyOptions{Roots: c.ClientCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err == nil
	}
	if verifies() {
		t.Error("a client of another authority is let in")
	}
	replace(t, asked.ClientCA, text(t, otherFiles.Certificate))
	if !verifies() || stale() != nil {
		t.Errorf("a client of the new authority is not let in: %v", stale())
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

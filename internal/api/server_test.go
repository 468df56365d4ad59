package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

type subject struct{ unhealthy, unready error }

func (s subject) Healthy() error { return s.unhealthy }
func (s subject) Ready() error   { return s.unready }
func (s subject) Status() any    { return map[string]string{"role": "test"} }

// serve runs a server for the test and returns a function that fetches a path from it.
func serve(t *testing.T, s subject) func(path string) (status int, body string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_test_gauge"}))
	server, err := Listen("127.0.0.1:0", Options{Subject: s, Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func(path string) (int, string) {
		resp, err := http.Get("http://" + server.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
}

func TestProbesSayWhyNot(t *testing.T) {
	get := serve(t, subject{unready: errors.New("draining")})
	if code, body := get("/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	if code, body := get("/readyz"); code != 503 || body != "draining\n" {
		t.Errorf("readyz: %d %q", code, body)
	}
}

func TestStatusIsJSONAndMetricsAreExposed(t *testing.T) {
	get := serve(t, subject{})
	code, body := get("/status")
	var status map[string]string
	if err := json.Unmarshal([]byte(body), &status); code != 200 || err != nil || status["role"] != "test" {
		t.Errorf("status: %d %q %v", code, body, err)
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "tidemark_test_gauge 0") {
		t.Errorf("metrics: %d %q", code, body)
	}
	if code, _ := get("/nothing"); code != 404 {
		t.Errorf("unknown path: %d", code)
	}
}

func TestPortInUseNamesTheAddressAndTheFlag(t *testing.T) {
	first, err := Listen("127.0.0.1:0", Options{Subject: subject{}, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	defer first.listener.Close()
	_, err = Listen(first.Addr(), Options{Subject: subject{}, Metrics: prometheus.NewRegistry()})
	if err == nil || !strings.Contains(err.Error(), first.Addr()) || !strings.Contains(err.Error(), "--listen") {
		t.Fatalf("want an error naming the address and the flag, got %v", err)
	}
}

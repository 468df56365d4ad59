package api

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	viewerToken   = "viewer-token-0123456789"
	operatorToken = "operator-token-0123456789"
)

func testTokens(t testing.TB) *Tokens {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	replace(t, path, "# who\n\nvic viewer "+viewerToken+"\nola operator "+operatorToken+"\n")
	tokens, err := ReadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// who answers with the name of whoever asks.
var who = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = w.Write([]byte("for " + IdentityOf(r.Context()).Name))
})

func ask(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, "http://127.0.0.1:7078"+path, nil)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, request)
	return answer
}

func TestRolesDecideWhoMaySeeAndWhoMayAct(t *testing.T) {
	h := guarded(who, testTokens(t), true)
	for _, c := range []struct {
		method, path, token string
		status              int
	}{
		{"GET", "/healthz", "", 200},
		{"GET", "/readyz", "", 200},
		{"GET", "/static/page.css", "", 200},
		{"GET", "/sign-in", "", 200},
		{"GET", "/static", "", 401},
		{"GET", "/healthz/../metrics", "", 401},
		{"GET", "/metrics", "", 401},
		{"GET", "/status", "wrong-token-0123456789", 401},
		{"GET", "/api/v1/tables", viewerToken, 200},
		{"HEAD", "/api/v1/tables", viewerToken, 200},
		{"POST", "/api/v1/tables/a/pause", viewerToken, 403},
		{"POST", "/sign-out", viewerToken, 200},
		{"POST", "/api/v1/tables/a/pause", operatorToken, 200},
		{"POST", "/api/v1/tables/a/pause", "", 401},
	} {
		var header []string
		if c.token != "" {
			header = []string{"Authorization", "Bearer " + c.token}
		}
		answer := ask(h, c.method, c.path, header...)
		if answer.Code != c.status {
			t.Errorf("%s %s with %q: %d, want %d", c.method, c.path, c.token, answer.Code, c.status)
		}
		if body := answer.Body.String(); c.token != "" && strings.Contains(body, c.token) {
			t.Errorf("%s %s: the token is in the answer: %s", c.method, c.path, body)
		}
	}
	if answer := ask(h, "GET", "/", "Cookie", TokenCookie+"="+operatorToken); answer.Body.String() != "for ola" {
		t.Errorf("by cookie: %d %s", answer.Code, answer.Body)
	}
	if answer := ask(h, "GET", "/tables?sort=age", "Accept", "text/html"); answer.Code != 303 || answer.Header().Get("Location") != "/sign-in?next=%2Ftables%3Fsort%3Dage" {
		t.Errorf("a person: %d %s", answer.Code, answer.Header().Get("Location"))
	}
}

func TestPagesOfOtherSitesCanDoNothing(t *testing.T) {
	for name, h := range map[string]http.Handler{"with tokens": guarded(who, testTokens(t), true), "without": guarded(who, nil, true)} {
		for _, header := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}} {
			header = append(header, "Cookie", TokenCookie+"="+operatorToken)
			if answer := ask(h, "POST", "/api/v1/tables/a/pause", header...); answer.Code != 403 {
				t.Errorf("%s, %v: %d", name, header, answer.Code)
			}
		}
		if answer := ask(h, "POST", "/act/pause", "Origin", "http://127.0.0.1:7078", "Cookie", TokenCookie+"="+operatorToken); answer.Code != 200 {
			t.Errorf("%s, from its own page: %d %s", name, answer.Code, answer.Body)
		}
	}
	rebound := httptest.NewRequest("GET", "http://evil.example:7078/api/v1/tables", nil)
	answer := httptest.NewRecorder()
	guarded(who, nil, true).ServeHTTP(answer, rebound)
	if answer.Code != 403 {
		t.Errorf("a name that was pointed at loopback: %d", answer.Code)
	}
}

func TestATokensFileSaysWhatIsWrongWithItAndNeverAToken(t *testing.T) {
	secret := "very-secret-0123456789"
	for text, says := range map[string]string{
		"":                             "no token",
		"a viewer":                     "line 1 has 2 words",
		"a viewer short":               "line 1: the token is shorter",
		"\na owner " + secret:          "line 2: the second word is the role",
		"a viewer " + secret + " more": "line 1 has 4 words",
		"a viewer " + secret + "\nb operator " + secret: "line 2: another line has the same token",
		strings.Repeat("x", 70_000):                     "too long",
	} {
		_, err := parseTokens([]byte(text))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%.40q: %v, want %q", text, err, says)
		}
	}
	if _, err := ReadTokens(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file was read")
	}
}

func TestAnOpenAddressIsRefusedUnlessSomebodySaysSo(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		_, err := Listen(address, Options{Subject: subject{}, Metrics: prometheus.NewRegistry()})
		if err == nil || !strings.Contains(err.Error(), "--tokens") || !strings.Contains(err.Error(), "--insecure") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for name, o := range map[string]Options{"insecure": {Insecure: true}, "tokens": {Tokens: testTokens(t)}} {
		o.Subject, o.Metrics = subject{}, prometheus.NewRegistry()
		server, err := Listen("0.0.0.0:0", o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		server.Close()
	}
}

// certify makes a certificate and key in a directory, signed by a parent or by itself.
func certify(t *testing.T, dir, name string, parent *tls.Certificate) (tls.Certificate, TLSFiles) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: parent == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer, signerKey := template, any(key)
	if parent != nil {
		signer, signerKey = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := TLSFiles{Certificate: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
	for path, block := range map[string]*pem.Block{files.Certificate: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		var out bytes.Buffer
		if err := pem.Encode(&out, block); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair, files
}

func TestTLSServesAndAsksClientsForACertificateOfTheAuthority(t *testing.T) {
	dir := t.TempDir()
	authority, authorityFiles := certify(t, dir, "authority", nil)
	_, files := certify(t, dir, "server", &authority)
	mine, _ := certify(t, dir, "client", &authority)
	files.ClientCA = authorityFiles.Certificate
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
	fetch := func(certificates ...tls.Certificate) (int, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates}}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport}).Get(server.URL() + "/healthz")
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_ = read(t, resp.Body)
		return resp.StatusCode, nil
	}
	if status, err := fetch(mine); err != nil || status != 200 {
		t.Errorf("with a certificate: %d %v", status, err)
	}
	if status, err := fetch(); err == nil {
		t.Errorf("without one: %d", status)
	}
	for _, bad := range []TLSFiles{{Certificate: files.Certificate}, {Certificate: files.Key, Key: files.Key}, {ClientCA: files.ClientCA}, {Certificate: files.Certificate, Key: files.Key, ClientCA: files.Key}} {
		if _, _, err := bad.config(); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

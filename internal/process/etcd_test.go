package process

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"tidemark/internal/etcd"
)

// authority signs certificates, in files.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes NAME.pem and NAME-key.pem.
func (a *authority) issue(name string, c *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if a.cert == nil {
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	if c.IsCA {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{a.path(name + ".pem"): {Type: "CERTIFICATE", Bytes: der}, a.path(name + "-key.pem"): {Type: "EC PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// strictEtcd is an etcd that lets in only clients with a certificate of the authority, and, once auth is on, users.
func strictEtcd(t *testing.T, a *authority) string {
	t.Helper()
	c := embed.NewConfig()
	c.Dir = t.TempDir()
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	client := url.URL{Scheme: "https", Host: "127.0.0.1:0"}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ClientTLSInfo = transport.TLSInfo{CertFile: a.path("server.pem"), KeyFile: a.path("server-key.pem"), TrustedCAFile: a.path("ca.pem"), ClientCertAuth: true}
	c.TickMs, c.ElectionMs = 20, 200
	c.EnableGRPCGateway = false
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	running, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.Close)
	<-running.Server.ReadyNotify()
	return "https://" + running.Clients[0].Addr().String()
}

func TestAnEtcdThatAsksForACertificateAndAUserIsReachedWithBoth(t *testing.T) {
	a := newAuthority(t)
	a.issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	a.issue("tidemark", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	endpoint := strictEtcd(t, a)

	login := EtcdLoginFlags{CA: a.path("ca.pem"), Cert: a.path("tidemark.pem"), Key: a.path("tidemark-key.pem")}
	dial := func(f EtcdLoginFlags, timeout time.Duration) (*clientv3.Client, error) {
		return EtcdFlags{Login: f}.Dial(t.Context(), []string{endpoint}, timeout)
	}
	client, err := dial(login, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const short = 300 * time.Millisecond // for what cannot succeed
	for name, f := range map[string]EtcdLoginFlags{"no certificate": {CA: login.CA}, "no authority": {}} {
		if c, err := dial(f, short); !errors.Is(err, etcd.ErrUnreachable) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}

	password := a.path("password")
	if err := os.WriteFile(password, []byte("a secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	// As docs/security.md says: a role that may do everything below /tidemark, and nothing else.
	const below = "/tidemark"
	_, err = client.UserAdd(ctx, "root", "root's own")
	for _, step := range []func() error{
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.RoleAdd(ctx, "tidemark"); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, "tidemark", below, clientv3.GetPrefixRangeEnd(below), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := client.UserAdd(ctx, "tidemark", "a secret"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "tidemark", "tidemark"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		if err = errors.Join(err, step()); err != nil {
			t.Fatal(err)
		}
	}
	login.User, login.PasswordFile = "tidemark", password
	user, err := dial(login, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	if _, err := user.Put(ctx, etcd.KeysOf("default").Cluster(), "x"); err != nil {
		t.Error(err)
	}
	if _, err := user.Put(ctx, "/elsewhere", "x"); err == nil {
		t.Error("the user may write anywhere")
	}
	if space, err := etcd.ReadSpace(ctx, user); err != nil || space.Members != 1 {
		t.Errorf("etcd's space, asked by a user without rights: %+v, %v", space, err)
	}
	if err := os.WriteFile(password, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := dial(login, short); err == nil || strings.Contains(err.Error(), "another") {
		t.Errorf("a wrong password: %v, %v", c, err)
	}
}

func TestFlagsForEtcdThatContradictThemselvesAreRefused(t *testing.T) {
	a := newAuthority(t)
	for name, c := range map[string]struct {
		flags    EtcdLoginFlags
		endpoint string
	}{
		"in the clear":        {EtcdLoginFlags{CA: a.path("ca.pem")}, "http://127.0.0.1:2379"},
		"a key alone":         {EtcdLoginFlags{Key: a.path("ca-key.pem")}, "https://127.0.0.1:2379"},
		"a user alone":        {EtcdLoginFlags{User: "x"}, "https://127.0.0.1:2379"},
		"no such authority":   {EtcdLoginFlags{CA: a.path("missing")}, "https://127.0.0.1:2379"},
		"no certificate file": {EtcdLoginFlags{CA: a.path("ca-key.pem")}, "https://127.0.0.1:2379"},
	} {
		if _, err := c.flags.Options([]string{c.endpoint}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

package process

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
)

// EtcdFlags say where the cluster's coordination is.
type EtcdFlags struct {
	Etcd    []string       `help:"etcd endpoints, comma separated." env:"TIDEMARK_ETCD" placeholder:"URL,…"`
	Login   EtcdLoginFlags `embed:"" prefix:"etcd-" group:"For an etcd that asks who comes:"`
	Cluster string         `help:"Name of the cluster that serves the root." default:"default" env:"TIDEMARK_CLUSTER" placeholder:"NAME"`
	Prefix  string         `help:"Prefix of the cluster's keys in etcd; /tidemark/CLUSTER if not given." env:"TIDEMARK_PREFIX" placeholder:"PREFIX"`
}

// EtcdLoginFlags say who a process is to etcd, and how it knows etcd. A password comes from a file: arguments and
// variables can be read by others.
type EtcdLoginFlags struct {
	CA           string `name:"ca" help:"Authority of etcd's certificates (PEM); that of the system if not given. Endpoints are https then." env:"TIDEMARK_ETCD_CA" placeholder:"FILE"`
	Cert         string `help:"Certificate to show to etcd (PEM)." env:"TIDEMARK_ETCD_CERT" placeholder:"FILE"`
	Key          string `help:"Key of that certificate (PEM)." env:"TIDEMARK_ETCD_KEY" placeholder:"FILE"`
	User         string `help:"User of etcd." env:"TIDEMARK_ETCD_USER" placeholder:"NAME"`
	PasswordFile string `help:"File that holds the user's password." env:"TIDEMARK_ETCD_PASSWORD_FILE" placeholder:"FILE"`
}

// Keys are the cluster's keys.
func (f EtcdFlags) Keys() etcd.Keys {
	if f.Prefix != "" {
		return etcd.Keys{Prefix: strings.TrimSuffix(f.Prefix, "/")}
	}
	return etcd.KeysOf(f.Cluster)
}

// Dial reaches an etcd at some endpoints, as the flags say.
func (f EtcdFlags) Dial(ctx context.Context, endpoints []string, timeout time.Duration) (*clientv3.Client, error) {
	options, err := f.Login.Options(endpoints)
	if err != nil {
		return nil, err
	}
	options.Timeout = timeout
	return etcd.Dial(ctx, options)
}

// Options are how an etcd at some endpoints is reached. An endpoint in the clear beside certificates is a UsageError: what
// is protected for would not be.
func (f EtcdLoginFlags) Options(endpoints []string) (etcd.DialOptions, error) {
	o := etcd.DialOptions{Endpoints: endpoints, Username: f.User}
	if (f.User == "") != (f.PasswordFile == "") {
		return o, Usagef("--etcd-user and --etcd-password-file go together")
	}
	if f.PasswordFile != "" {
		body, err := os.ReadFile(f.PasswordFile)
		if err != nil {
			return o, fmt.Errorf("cannot read the password of etcd's user %s: %w", f.User, err)
		}
		o.Password = string(bytes.TrimRight(body, "\r\n"))
	}
	if f.CA == "" && f.Cert == "" && f.Key == "" {
		return o, nil
	}
	for _, e := range endpoints {
		if strings.HasPrefix(e, "http://") {
			return o, Usagef("--etcd %s is in the clear, and certificates are given for it; write https://", e)
		}
	}
	var err error
	o.TLS, err = ClientTLS("etcd", f.CA, f.Cert, f.Key)
	return o, err
}

// ClientTLS is how a client knows servers of a kind, such as "etcd", and shows itself to them: by the PEM files of their
// authority and of its own certificate, as the flags --KIND-ca, --KIND-cert and --KIND-key name them; empty ones are left
// out, and without any it is nil.
func ClientTLS(kind, ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("cannot read the authority of %s: %w", kind, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("there is no certificate in %s", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, Usagef("--%s-cert and --%s-key go together", kind, kind)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cannot read the certificate %s for %s and its key %s: %w", cert, kind, key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

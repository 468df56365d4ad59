package api

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLSFiles are the PEM files of TLS. Without Certificate and Key there is none; with ClientCA a client must show a
// certificate of that authority, whatever it asks for.
type TLSFiles struct{ Certificate, Key, ClientCA string }

// config reads the files; nil is no TLS. Each handshake is by what the files say then, so that certificates are renewed without
// a restart; connections that stand, stand. stale is why the newest contents are not in force, nil if they are.
func (f TLSFiles) config() (_ *tls.Config, stale func() error, err error) {
	none := func() error { return nil }
	if f == (TLSFiles{}) {
		return nil, none, nil
	}
	paths := []string{f.Certificate, f.Key}
	if f.ClientCA != "" {
		paths = append(paths, f.ClientCA)
	}
	r, err := load(f.read, paths...)
	if err != nil {
		return nil, none, err
	}
	c := r.value.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, _ := r.get()
		return c, nil
	}
	return c, func() error { _, err := r.get(); return err }, nil
}

func (f TLSFiles) read() (*tls.Config, error) {
	if f.Certificate == "" || f.Key == "" {
		return nil, errors.New("TLS needs both --tls-cert and --tls-key")
	}
	certificate, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate %s and its key %s: %w", f.Certificate, f.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}}
	if f.ClientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("cannot read the authority of clients: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("there is no certificate in %s", f.ClientCA)
	}
	return c, nil
}

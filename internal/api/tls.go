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

// config reads the files; nil is no TLS.
func (f TLSFiles) config() (*tls.Config, error) {
	if f == (TLSFiles{}) {
		return nil, nil
	}
	if f.Certificate == "" || f.Key == "" {
		return nil, errors.New("TLS needs both --tls-cert and --tls-key")
	}
	certificate, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate %s and its key %s: %w", f.Certificate, f.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
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

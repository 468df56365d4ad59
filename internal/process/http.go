package process

import (
	"context"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/api"
	"tidemark/internal/clock"
	"tidemark/internal/control"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/observe"
	"tidemark/internal/random"
	"tidemark/internal/web"
)

// HTTPFlags say who may reach the HTTP server.
type HTTPFlags struct {
	Tokens      string `help:"File of lines NAME ROLE TOKEN, the role being viewer (sees) or operator (acts). With it, every request but /healthz and /readyz needs a token." env:"TIDEMARK_TOKENS" placeholder:"FILE"`
	TLSCert     string `name:"tls-cert" help:"Serve HTTPS with this certificate (PEM)." env:"TIDEMARK_TLS_CERT" placeholder:"FILE"`
	TLSKey      string `name:"tls-key" help:"Key of the certificate (PEM)." env:"TIDEMARK_TLS_KEY" placeholder:"FILE"`
	TLSClientCA string `name:"tls-client-ca" help:"Let in only clients with a certificate of this authority (PEM)." env:"TIDEMARK_TLS_CLIENT_CA" placeholder:"FILE"`
	Insecure    bool   `help:"Listen beyond loopback without tokens: everybody who reaches the address may see and do everything." env:"TIDEMARK_INSECURE"`
}

// Bind binds the address for a subject; nil leaves that to Speak. The tokens are nil if none are asked for.
func (f HTTPFlags) Bind(address string, subject api.Subject, metrics *prometheus.Registry) (*api.Server, *api.Tokens, error) {
	var tokens *api.Tokens
	if f.Tokens != "" {
		var err error
		if tokens, err = api.ReadTokens(f.Tokens); err != nil {
			return nil, nil, err
		}
	}
	server, err := api.Listen(address, api.Options{
		Subject: subject, Metrics: metrics, Tokens: tokens, Insecure: f.Insecure,
		TLS: api.TLSFiles{Certificate: f.TLSCert, Key: f.TLSKey, ClientCA: f.TLSClientCA},
	})
	return server, tokens, err
}

// FaceConfig is what a Face works with.
type FaceConfig struct {
	Client *clientv3.Client
	Keys   etcd.Keys
	Store  objstore.Store
	Clock  clock.Clock
	Random random.Source
	Log    hclog.Logger
	Tokens *api.Tokens // nil: none are asked for
}

// Face is what a cluster shows to people and their programs: /api/v1 and the page.
type Face struct {
	see   *observe.Observer
	api   *api.V1
	pages *web.Pages
}

// NewFace makes a face; nothing is asked of etcd before Run.
func NewFace(c FaceConfig) (*Face, error) {
	see := observe.New(observe.Config{Client: c.Client, Keys: c.Keys, Store: c.Store, Clock: c.Clock, Random: c.Random, Log: c.Log})
	act := control.New(control.Deps{Client: c.Client, Keys: c.Keys, Store: c.Store, Clock: c.Clock, Random: c.Random, Log: c.Log})
	pages, err := web.New(web.Config{See: see, Act: act, Tokens: c.Tokens, Version: Version})
	if err != nil {
		return nil, err
	}
	return &Face{see: see, api: api.NewV1(see, act), pages: pages}, nil
}

// Mount serves the face on a server from now on.
func (f *Face) Mount(server *api.Server) {
	server.Mount("/api/v1/", f.api.Handler())
	server.Mount("/", f.pages.Handler())
}

// Run follows the cluster until ctx is done.
func (f *Face) Run(ctx context.Context) error { return f.see.Run(ctx) }

package process

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
)

// RootFlags say where the tables are.
type RootFlags struct {
	Root string  `help:"Where the tables are: a directory, file:///DIR or s3://BUCKET/PREFIX." default:"tidemark-data" env:"TIDEMARK_ROOT" placeholder:"URL"`
	S3   S3Flags `embed:"" prefix:"s3-" group:"For roots on S3. Credentials and region come by the AWS SDK's usual ways:"`
}

// S3Flags say how a root on S3 is reached.
type S3Flags struct {
	Endpoint   string            `help:"URL of a server that speaks S3; AWS if not given." env:"TIDEMARK_S3_ENDPOINT" placeholder:"URL"`
	PathStyle  bool              `help:"Write the bucket into the path of requests instead of the host name, as most servers other than AWS want it." env:"TIDEMARK_S3_PATH_STYLE"`
	Tag        map[string]string `help:"Tag to put on every object; may be given more than once." env:"TIDEMARK_S3_TAGS" placeholder:"NAME=VALUE"`
	Encryption string            `help:"Server-side encryption to ask for: AES256 or aws:kms; the bucket's default if not given." enum:",AES256,aws:kms" default:"" env:"TIDEMARK_S3_ENCRYPTION" placeholder:"KIND"`
	KMSKey     string            `name:"kms-key" help:"Key for aws:kms; the bucket's default if not given." env:"TIDEMARK_S3_KMS_KEY" placeholder:"ARN"`
}

// Options are the flags as the store wants them.
func (f S3Flags) Options() objstore.S3Options {
	return objstore.S3Options{Endpoint: f.Endpoint, PathStyle: f.PathStyle, Tags: f.Tag, Encryption: f.Encryption, KMSKey: f.KMSKey}
}

// Open opens the root. With create, a missing local directory is made.
func (f RootFlags) Open(ctx context.Context, log hclog.Logger, c clock.Clock, r random.Source, create bool) (objstore.Store, error) {
	store, err := objstore.Open(ctx, f.Root, objstore.Options{Clock: c, Random: r, Log: log, CreateRoot: create, S3: f.S3.Options()})
	if err != nil {
		return nil, fmt.Errorf("cannot open root %s: %w", f.Root, err)
	}
	return store, nil
}

// Serve opens the root for a server: it is probed, and refused by the name of what its store does not guarantee, and its
// requests are counted.
func (f RootFlags) Serve(ctx context.Context, log hclog.Logger, c clock.Clock, r random.Source, metrics prometheus.Registerer, create bool) (objstore.Store, error) {
	store, err := f.Open(ctx, log, c, r, create)
	if err != nil {
		return nil, err
	}
	if store, err = objstore.Instrument(store, metrics); err != nil {
		return nil, fmt.Errorf("root %s: %w", f.Root, err)
	}
	if err := objstore.Probe(ctx, store, r); err != nil {
		return nil, fmt.Errorf("root %s: %w", f.Root, err)
	}
	return store, nil
}

// LeaseFlags are the timing of the lease that the process holds.
type LeaseFlags struct {
	LeaseTTL       time.Duration `name:"lease-ttl" help:"Time to live of this process's lease: how long after its death others wait for what it held." default:"15s" env:"TIDEMARK_LEASE_TTL" placeholder:"DURATION"`
	RequestTimeout time.Duration `help:"Longest time that one request to etcd may take; a sixth of the lease if not given." env:"TIDEMARK_REQUEST_TIMEOUT" placeholder:"DURATION"`
	PublishTimeout time.Duration `help:"Longest time that a publish may still be in flight when the lease is lost; a third of the lease if not given." env:"TIDEMARK_PUBLISH_TIMEOUT" placeholder:"DURATION"`
	ClockSkew      time.Duration `help:"Allowance for clocks that run at different speeds. The lease must outlast publish timeout and skew by 0.1 s." default:"0s" env:"TIDEMARK_CLOCK_SKEW" placeholder:"DURATION"`
	StartWait      time.Duration `help:"How long a start waits for the lease of a predecessor of the same --id; lease and publish timeout and skew if not given." env:"TIDEMARK_START_WAIT" placeholder:"DURATION"`
}

// Config is the lease's timing; one that contradicts itself is a UsageError.
func (f LeaseFlags) Config() (ownership.Config, error) {
	c := ownership.DefaultConfig(f.LeaseTTL)
	if f.RequestTimeout != 0 {
		c.RequestTimeout = f.RequestTimeout
	}
	if f.PublishTimeout != 0 {
		c.PublishTimeout = f.PublishTimeout
	}
	c.Skew = f.ClockSkew
	c.StartWait = c.TTL + c.PublishTimeout + c.Skew
	if f.StartWait != 0 {
		c.StartWait = f.StartWait
	}
	// Two processes of one --id are a mistake: the second must not wait for ever in silence.
	c.RivalIsError = true
	if err := c.Check(); err != nil {
		return c, Usagef("%v", err)
	}
	return c, nil
}

package writer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"go.opentelemetry.io/otel/trace"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/shardmanifest"
)

const (
	// bufferDefault bounds unsealed rows unless the configuration says otherwise, in bytes of Arrow memory.
	bufferDefault = 256 << 20
	// bufferMax keeps every column of one generation far below the 2 GiB that an Arrow array can address.
	bufferMax = 1 << 30

	// pendingDefault is four times the default of critical_generations: by then the table is served first, and a
	// writer that still gets ahead should wait. It leaves three quarters of what a manifest can list.
	pendingDefault = 1024

	// backlogPoll is how often a writer held back by its backlog looks again.
	backlogPoll = time.Second

	// publishPause is how long a writer does not try to publish after a failure, so that sealing keeps its pace while
	// etcd is away.
	publishPause = 10 * time.Second

	// abortTimeout bounds the throwing away of a failed upload.
	abortTimeout = 10 * time.Second

	// rowsPerTake bounds the rows that are gathered at once while a sorted generation is written.
	rowsPerTake = 32 << 10

	// sealsAtOnce bounds how many buckets a Router seals at the same time, and with it the memory for sorting.
	sealsAtOnce = 4
	// claimsAtOnce bounds how many buckets a Router claims at the same time.
	claimsAtOnce = 8
)

// Backpressure is what Append does when MaxPending generations of the shard are sealed and not merged.
type Backpressure int

const (
	// Wait: Append waits until executors have caught up, or its context ends.
	Wait Backpressure = iota
	// Refuse: Append fails with ErrBacklogged at once.
	Refuse
)

// S3 are the options of a root on S3. The zero value is AWS.
type S3 struct {
	Endpoint   string            // of a server that speaks S3; empty is AWS
	PathStyle  bool              // the bucket is in the path of requests, not in the host name
	Tags       map[string]string // put on every object
	Encryption string            // AES256 or aws:kms; empty leaves it to the bucket
	KMSKey     string            // with aws:kms; empty is the bucket's default
}

// Config says what to write to. Root and Table are required, and Shard unless a Router is opened.
type Config struct {
	Root  string // a directory, or a URL such as s3://bucket/prefix
	Table string // it must exist
	Shard string // a new or existing shard; of an upsert table a bucket, as in bucket-0007
	Label string // who is writing, for people: it is shown to whoever is fenced by this writer

	// S3 says how a root on S3 is reached. Credentials and region come by the AWS SDK's usual ways.
	S3 S3

	// Etcd are the endpoints to publish seals to; none leaves that to the masters' scans.
	Etcd []string
	// EtcdTLS, EtcdUser and EtcdPassword are for an etcd that asks who comes.
	EtcdTLS                *tls.Config
	EtcdUser, EtcdPassword string
	// Prefix is that of the cluster's keys in etcd; empty is the default cluster's.
	Prefix string

	// Tracers gets a span for every seal, in the trace in which the executors show the generation's merge
	// (docs/operations.md); nil makes none. Any provider will do; the span is linked to that of Seal's context.
	Tracers trace.TracerProvider

	// IfFree refuses, with ErrOpen, a shard that another writer has open, instead of fencing that writer.
	IfFree bool
	// MaxPending is the number of sealed and unmerged generations of a shard at which OnBacklog applies: 1 to 4096;
	// 0 is 1024.
	MaxPending int
	OnBacklog  Backpressure
	// BufferBytes bounds the rows that are not sealed yet, at most 1 GiB; 0 is 256 MiB. With a Router it bounds all
	// buckets together.
	BufferBytes int64
}

func (c Config) withDefaults() (Config, error) {
	var problems []string
	if c.Table == "" {
		problems = append(problems, "Table is empty")
	}
	if c.MaxPending < 0 || c.MaxPending > shardmanifest.GenerationsMax {
		problems = append(problems, fmt.Sprintf("MaxPending is %d; it may be 0 to %d", c.MaxPending, shardmanifest.GenerationsMax))
	}
	if c.BufferBytes < 0 || c.BufferBytes > bufferMax {
		problems = append(problems, fmt.Sprintf("BufferBytes is %d; it may be 0 to %d", c.BufferBytes, bufferMax))
	}
	if c.OnBacklog != Wait && c.OnBacklog != Refuse {
		problems = append(problems, fmt.Sprintf("OnBacklog is %d; it may be Wait or Refuse", c.OnBacklog))
	}
	if len(problems) > 0 {
		return c, errors.New("writer configuration: " + strings.Join(problems, "; "))
	}
	if c.MaxPending == 0 {
		c.MaxPending = pendingDefault
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = bufferDefault
	}
	return c, nil
}

// Deps are what programs of this module share with their writers, and what tests replace. Whatever is nil is made from
// the Config; what was given is not closed by the writer.
type Deps struct {
	Store     objstore.Store
	Publisher Publisher
	Clock     clock.Clock
	Random    random.Source
	Mem       memory.Allocator
}

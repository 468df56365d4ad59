package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/clock"
	"tidemark/internal/random"
)

// S3Options are the options of s3:// roots. Credentials and region come by the AWS SDK's usual ways: environment,
// profile, web identity, instance role.
type S3Options struct {
	Endpoint  string // of a server that speaks S3; empty means AWS
	PathStyle bool   // the bucket is the first segment of the path, not a part of the host name

	Tags       map[string]string // put on every object that is created
	Encryption string            // x-amz-server-side-encryption: AES256 or aws:kms; empty leaves it to the bucket
	KMSKey     string            // with aws:kms: the key, else the bucket's or account's default
}

// S3 is a store in a bucket, or below a prefix of one, on AWS or a server that speaks its protocol.
//
//   - Conditional requests make one attempt. Only a 409, which says that nothing was done because of a concurrent
//     request, is tried again here.
//   - Reads, deletes and uploads are retried with jittered backoff, bounded in time.
//   - Each attempt asks the scope of its owner again before it is sent, and while its body is sent.
type S3 struct {
	url    string
	bucket string
	prefix string // empty, or with a trailing slash
	api    *s3.Client
	clock  clock.Clock
	random random.Source
	log    hclog.Logger

	answerMax time.Duration // the longest that any attempt may take besides its bytes; less than moveTimeout in tests only

	tags       *string // encoded as a query
	encryption types.ServerSideEncryption
	kmsKey     *string
	checksum   types.ChecksumAlgorithm // of the parts of uploads; empty when the AWS configuration asks for none

	requests atomic.Pointer[prometheus.CounterVec] // labels op, status; set by Instrument
}

var _ Store = (*S3)(nil)

// defaultRegion is for servers that have none, and for AWS until it says which region the bucket is in.
const defaultRegion = "us-east-1"

// openS3 opens s3://bucket/prefix with one small request that tells whether it can be listed.
func openS3(ctx context.Context, root string, o Options) (*S3, error) {
	u, err := url.Parse(root)
	switch {
	case err != nil:
		return nil, badRoot(root, errors.Unwrap(err))
	case u.User != nil:
		return nil, badRoot(u.Redacted(), errors.New("credentials do not belong into the URL; use AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"))
	case u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, badRoot(root, errors.New("write s3://bucket or s3://bucket/prefix"))
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := checkKey(opOpen, prefix); err != nil {
			return nil, badRoot(root, fmt.Errorf("bad prefix: %w", errors.Unwrap(err)))
		}
		prefix += "/"
	}
	s := &S3{url: root, bucket: u.Host, prefix: prefix, clock: o.Clock, random: o.Random, log: o.Log, answerMax: moveTimeout}
	if err := s.connect(ctx, o.S3); err != nil {
		return nil, badRoot(root, err)
	}
	return s, s.checkRoot(ctx)
}

func (s *S3) connect(ctx context.Context, o S3Options) error {
	if o.KMSKey != "" && o.Encryption != string(types.ServerSideEncryptionAwsKms) {
		return errors.New("an encryption key needs the encryption aws:kms")
	}
	if len(o.Tags) > 0 {
		tags := url.Values{}
		for _, name := range slices.Sorted(maps.Keys(o.Tags)) {
			tags.Set(name, o.Tags[name])
		}
		s.tags = aws.String(tags.Encode())
	}
	if o.KMSKey != "" {
		s.kmsKey = aws.String(o.KMSKey)
	}
	s.encryption = types.ServerSideEncryption(o.Encryption)

	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return fmt.Errorf("the AWS configuration cannot be loaded: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = defaultRegion
	}
	s.api = s3.NewFromConfig(cfg, func(so *s3.Options) {
		so.HTTPClient = newS3Transport(s)
		so.Retryer = aws.NopRetryer{} // attempts are made here, where a fence can stop them
		so.UsePathStyle = o.PathStyle
		so.DisableLogOutputChecksumValidationSkipped = true
		if o.Endpoint != "" {
			so.BaseEndpoint = aws.String(o.Endpoint)
		}
	})
	if s.api.Options().RequestChecksumCalculation != aws.RequestChecksumCalculationWhenRequired {
		s.checksum = types.ChecksumAlgorithmCrc32
	}
	return nil
}

// checkRoot lists one key. Transient trouble is retried for a short while only: somebody waits for the start.
func (s *S3) checkRoot(ctx context.Context) error {
	_, err := s.retried(ctx, opOpen, s.url, 0, openRetries, func(ctx context.Context) error {
		_, err := s.api.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &s.prefix, MaxKeys: aws.Int32(1)})
		return err
	})
	if err == nil || CodeOf(err) == CodeCancelled {
		return err
	}
	return badRoot(s.url, errors.Unwrap(err))
}

// URL returns the root as the user wrote it.
func (s *S3) URL() string { return s.url }

// full returns the key in the bucket.
func (s *S3) full(op, key string) (*string, error) {
	if err := checkKey(op, key); err != nil {
		return nil, err
	}
	if len(s.prefix)+len(key) > keyBytesMax {
		return nil, fail(op, key, CodeInvalid, fmt.Errorf("longer than %d bytes with the root's prefix", keyBytesMax))
	}
	return aws.String(s.prefix + key), nil
}

// Get implements [Store].
func (s *S3) Get(ctx context.Context, key string) (body []byte, info Info, err error) {
	full, err := s.full(OpGet, key)
	if err != nil {
		return nil, Info{}, err
	}
	_, err = s.retried(ctx, OpGet, key, 0, usualRetries, func(ctx context.Context) error {
		out, err := s.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: full})
		if err != nil {
			return err
		}
		defer out.Body.Close()
		body, err = readBody(out)
		info = Info{Key: key, Size: int64(len(body)), ETag: aws.ToString(out.ETag), Modified: aws.ToTime(out.LastModified)}
		return err
	})
	if err != nil {
		return nil, Info{}, err
	}
	return body, info, nil
}

// GetRange implements [Store].
func (s *S3) GetRange(ctx context.Context, key string, offset, length int64) (body []byte, err error) {
	if err := checkRange(key, offset, length); err != nil {
		return nil, err
	}
	full, err := s.full(OpGetRange, key)
	if err != nil {
		return nil, err
	}
	if length == 0 { // a range of nothing cannot be written as a header
		_, err := s.Head(ctx, key)
		return nil, err
	}
	// The end is inclusive.
	bytes := "bytes=" + strconv.FormatInt(offset, 10) + "-" + strconv.FormatInt(offset+length-1, 10)
	_, err = s.retried(ctx, OpGetRange, key, length, usualRetries, func(ctx context.Context) error {
		out, err := s.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: full, Range: &bytes})
		if err != nil {
			return err
		}
		defer out.Body.Close()
		if got := aws.ToInt64(out.ContentLength); got > length {
			return fmt.Errorf("the store ignores ranges: it sent %d bytes where %d were asked for", got, length)
		}
		body, err = readBody(out)
		return err
	})
	if errors.Is(err, errBehindEnd) {
		return nil, nil
	}
	return body, err
}

// readBody reads an answer to its end. A length that the server has announced must be met.
func readBody(out *s3.GetObjectOutput) ([]byte, error) {
	if out.ContentLength == nil || *out.ContentLength < 0 {
		return io.ReadAll(out.Body)
	}
	body := make([]byte, *out.ContentLength)
	_, err := io.ReadFull(out.Body, body)
	return body, err
}

// Head implements [Store].
func (s *S3) Head(ctx context.Context, key string) (info Info, err error) {
	full, err := s.full(OpHead, key)
	if err != nil {
		return Info{}, err
	}
	_, err = s.retried(ctx, OpHead, key, 0, usualRetries, func(ctx context.Context) error {
		info, err = s.head(ctx, key, full)
		return err
	})
	return info, err
}

func (s *S3) head(ctx context.Context, key string, full *string) (Info, error) {
	out, err := s.api.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: full})
	if err != nil {
		return Info{}, err
	}
	return Info{Key: key, Size: aws.ToInt64(out.ContentLength), ETag: aws.ToString(out.ETag), Modified: aws.ToTime(out.LastModified), Vouched: true}, nil
}

// List implements [Store].
func (s *S3) List(ctx context.Context, req ListRequest) (Page, error) {
	if err := checkList(&req); err != nil {
		return Page{}, err
	}
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + req.Prefix), MaxKeys: aws.Int32(int32(req.Max))}
	if req.After != "" {
		in.StartAfter = aws.String(s.prefix + req.After)
	}
	if req.Delimited {
		in.Delimiter = aws.String("/")
	}
	for {
		var out *s3.ListObjectsV2Output
		x, err := s.retried(ctx, OpList, req.Prefix, 0, usualRetries, func(ctx context.Context) (err error) {
			out, err = s.api.ListObjectsV2(ctx, in)
			return err
		})
		if err != nil {
			return Page{}, err
		}
		page := Page{More: aws.ToBool(out.IsTruncated), Date: x.date}
		for _, o := range out.Contents {
			key := strings.TrimPrefix(aws.ToString(o.Key), s.prefix)
			page.Objects = append(page.Objects, Info{Key: key, Size: aws.ToInt64(o.Size), ETag: aws.ToString(o.ETag), Modified: aws.ToTime(o.LastModified)})
			page.Next = key
		}
		for _, d := range out.CommonPrefixes {
			// A server starts after the key it is told to, and may then fold the keys that follow into a directory
			// that an earlier page has had.
			if dir := strings.TrimPrefix(aws.ToString(d.Prefix), s.prefix); dir > req.After {
				page.Dirs = append(page.Dirs, dir)
				page.Next = max(page.Next, dir)
			}
		}
		if !page.More || len(page.Objects)+len(page.Dirs) > 0 {
			return page, nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// PutIfAbsent implements [Store].
func (s *S3) PutIfAbsent(ctx context.Context, key string, body []byte) Result {
	return s.conditional(ctx, OpPutIfAbsent, key, body, ErrExists, func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") })
}

// ReplaceIfMatch implements [Store].
func (s *S3) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) Result {
	if etag == "" { // which S3 would take for no condition at all
		return refused(OpReplaceIfMatch, key, CodeMismatch, ErrMismatch)
	}
	return s.conditional(ctx, OpReplaceIfMatch, key, body, ErrMismatch, func(in *s3.PutObjectInput) { in.IfMatch = &etag })
}

// conditional sends one put with a condition. no is the sentinel for its failing.
func (s *S3) conditional(ctx context.Context, op, key string, body []byte, no error, condition func(*s3.PutObjectInput)) Result {
	full, err := s.full(op, key)
	if err != nil {
		return Result{Outcome: Refused, Err: err}
	}
	for attempt := 0; ; attempt++ {
		var out *s3.PutObjectOutput
		x, t := s.once(ctx, op, answerTimeout, int64(len(body)), func(ctx context.Context) (err error) {
			in := s.putInput(full, body)
			condition(in)
			out, err = s.api.PutObject(ctx, in)
			return err
		})
		switch {
		case t == nil:
			return Result{Outcome: Applied, Info: Info{Key: key, Size: int64(len(body)), ETag: aws.ToString(out.ETag), Modified: x.date}}
		case errors.Is(t.err, errPrecondition), op == OpReplaceIfMatch && errors.Is(t.err, ErrNotFound):
			return refused(op, key, t.code, no)
		case errors.Is(t.err, errConflict) && attempt < conflictsMax:
			if err := s.clock.Sleep(ctx, conflictRetries.wait(s.random, attempt, t)); err != nil {
				return refused(op, key, t.code, err)
			}
		case t.certain:
			return refused(op, key, t.code, t.err)
		default:
			return unknown(op, key, t.code, t.err)
		}
	}
}

// Delete implements [Store].
func (s *S3) Delete(ctx context.Context, key string) error {
	full, err := s.full(OpDelete, key)
	if err != nil {
		return err
	}
	_, err = s.retried(ctx, OpDelete, key, 0, usualRetries, func(ctx context.Context) error {
		_, err := s.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: full})
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

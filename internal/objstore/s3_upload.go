package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithy "github.com/aws/smithy-go"
)

const (
	// PartBytes is the size of the parts of an upload to S3. S3 takes no less than 5 MiB but for the last, and no more
	// than partsMax of them, so an object may have 80 GB. An upload holds up to two parts in memory: one is sent while
	// the next is filled.
	PartBytes = 8 << 20
	partsMax  = 10_000
	// abortTimeout bounds an abort whose caller's context has ended already.
	abortTimeout = 15 * time.Second
)

// s3Upload sends a small object by one put, and a larger one in parts.
type s3Upload struct {
	store  *S3
	ctx    context.Context // of Create
	cancel context.CancelCauseFunc
	key    string
	full   *string

	filling []byte // of the part that is next
	spare   []byte // buffer that is not in use
	size    int64
	id      *string // of the multipart upload, once there is one
	// checksum is that of its parts; none if it began with a copy.
	checksum types.ChecksumAlgorithm
	parts    []types.CompletedPart
	sending  chan sentPart // holds the result of the part under way; nil without one
	failed   error         // sticky
	ended    bool
}

type sentPart struct {
	part   types.CompletedPart
	buffer []byte
	err    error
}

// putInput is the request of every put, with what the options pass through.
func (s *S3) putInput(full *string, body []byte) *s3.PutObjectInput {
	return &s3.PutObjectInput{
		Bucket: &s.bucket, Key: full, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		Tagging: s.tags, ServerSideEncryption: s.encryption, SSEKMSKeyId: s.kmsKey,
	}
}

// Create implements [Store]. It sends nothing: the first part does.
func (s *S3) Create(ctx context.Context, key string) (Upload, error) {
	full, err := s.full(OpCreate, key)
	if err != nil {
		return nil, err
	}
	if err := Admitted(ctx); err != nil {
		return nil, fail(OpCreate, key, CodeCancelled, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	return &s3Upload{store: s, ctx: ctx, cancel: cancel, key: key, full: full, checksum: s.checksum}, nil
}

func (u *s3Upload) Write(p []byte) (written int, err error) {
	if u.ended {
		return 0, fail(OpWrite, u.key, CodeInvalid, errUploadEnded)
	}
	if u.failed != nil {
		return 0, u.failed
	}
	if err := Admitted(u.ctx); err != nil {
		return 0, fail(OpWrite, u.key, CodeCancelled, err)
	}
	for len(p) > 0 {
		// A full part is sent only when more follows, so that an object of one part is one put.
		if len(u.filling) == PartBytes {
			if err := u.send(); err != nil {
				u.failed = err
				return written, err
			}
		}
		n := min(len(p), PartBytes-len(u.filling))
		u.filling = append(u.filling, p[:n]...)
		u.size += int64(n)
		written += n
		p = p[n:]
	}
	return written, nil
}

// send waits for the part under way and starts the part that has been filled.
func (u *s3Upload) send() error {
	if err := u.wait(); err != nil {
		return err
	}
	if u.id == nil {
		if err := u.begin(); err != nil {
			return err
		}
	}
	number := len(u.parts) + 1
	if number > partsMax {
		return fail(OpWrite, u.key, CodeInvalid, fmt.Errorf("larger than %d parts of %d bytes", partsMax, PartBytes))
	}
	buffer := u.filling
	u.filling, u.spare = u.spare[:0], nil
	sending := make(chan sentPart, 1)
	u.sending = sending
	go func() { // wait, called by every end of the upload, waits for it
		part, err := u.sendPart(int32(number), buffer)
		sending <- sentPart{part, buffer, err}
	}()
	return nil
}

// wait collects the part under way.
func (u *s3Upload) wait() error {
	if u.sending == nil {
		return nil
	}
	sent := <-u.sending
	u.sending = nil
	if sent.err != nil {
		return sent.err
	}
	u.spare = sent.buffer
	u.parts = append(u.parts, sent.part)
	return nil
}

func (u *s3Upload) begin() error {
	s := u.store
	_, err := s.retried(u.ctx, OpCreate, u.key, 0, usualRetries, func(ctx context.Context) error {
		out, err := s.api.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
			Bucket: &s.bucket, Key: u.full, ChecksumAlgorithm: u.checksum,
			Tagging: s.tags, ServerSideEncryption: s.encryption, SSEKMSKeyId: s.kmsKey,
		})
		if err == nil {
			u.id = out.UploadId
		}
		return err
	})
	return err
}

func (u *s3Upload) sendPart(number int32, body []byte) (part types.CompletedPart, err error) {
	s := u.store
	_, err = s.retried(u.ctx, OpWrite, u.key, int64(len(body)), usualRetries, func(ctx context.Context) error {
		out, err := s.api.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &s.bucket, Key: u.full, UploadId: u.id, PartNumber: &number,
			Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))), ChecksumAlgorithm: u.checksum,
		})
		if err != nil {
			return err
		}
		part = types.CompletedPart{PartNumber: &number, ETag: out.ETag}
		if u.checksum != "" {
			part.ChecksumCRC32 = out.ChecksumCRC32 // nil from servers that know no checksums
		}
		return nil
	})
	return part, err
}

func (u *s3Upload) Complete(ctx context.Context) (Info, error) {
	switch {
	case u.ended:
		return Info{}, fail(OpComplete, u.key, CodeInvalid, errUploadEnded)
	case u.failed != nil:
		return Info{}, u.failed
	}
	// The end of either context stops the completion.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(u.ctx, func() { cancel(context.Cause(u.ctx)) })()
	if err := errors.Join(Admitted(u.ctx), Admitted(ctx)); err != nil {
		return Info{}, fail(OpComplete, u.key, CodeCancelled, err)
	}
	finish := u.put
	if u.id != nil {
		finish = u.join
	}
	info, err := finish(ctx)
	if err != nil {
		u.failed = err
		return Info{}, err
	}
	u.end()
	return info, nil
}

// put sends an object of one part.
func (u *s3Upload) put(ctx context.Context) (Info, error) {
	s := u.store
	var etag *string
	x, err := s.retried(ctx, OpComplete, u.key, u.size, usualRetries, func(ctx context.Context) error {
		out, err := s.api.PutObject(ctx, s.putInput(u.full, u.filling))
		if err == nil {
			etag = out.ETag
		}
		return err
	})
	if err != nil {
		return Info{}, err
	}
	return Info{Key: u.key, Size: u.size, ETag: aws.ToString(etag), Modified: x.date, Vouched: true}, nil
}

// join sends the last part and completes the multipart upload. When an earlier attempt may have completed it, the answer
// NoSuchUpload to a later one says nothing; the object decides.
func (u *s3Upload) join(ctx context.Context) (Info, error) {
	if len(u.filling) > 0 {
		if err := u.send(); err != nil {
			return Info{}, err
		}
	}
	if err := u.wait(); err != nil {
		return Info{}, err
	}
	s := u.store
	info := Info{Key: u.key, Size: u.size, Vouched: true}
	attempts := 0
	x, err := s.retried(ctx, OpComplete, u.key, 0, moveRetries, func(ctx context.Context) error {
		attempts++
		out, err := s.api.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &s.bucket, Key: u.full, UploadId: u.id, MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
		})
		if err == nil {
			info.ETag = aws.ToString(out.ETag)
			return nil
		}
		var answer smithy.APIError
		if attempts == 1 || !errors.As(err, &answer) || answer.ErrorCode() != codeNoUpload {
			return err
		}
		found, headErr := s.head(ctx, u.key, u.full)
		var missing *types.NotFound
		switch {
		case errors.As(headErr, &missing), headErr == nil && found.Size != u.size:
			return err
		case headErr != nil:
			return headErr
		}
		info = found
		return nil
	})
	if err != nil {
		return Info{}, err
	}
	if info.Modified.IsZero() {
		info.Modified = x.date
	}
	return info, nil
}

// Abort works even when the caller's context has ended, since that is when it is needed; a fence still refuses it.
func (u *s3Upload) Abort(ctx context.Context) error {
	if u.ended {
		return nil
	}
	u.end()
	if u.id == nil {
		return nil
	}
	s := u.store
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_, err := s.retried(ctx, OpAbort, u.key, 0, usualRetries, func(ctx context.Context) error {
		_, err := s.api.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: u.full, UploadId: u.id})
		return err
	})
	if errors.Is(err, errNoUpload) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Discard frees the buffers and waits for the part under way, which it cancels.
func (u *s3Upload) Discard() {
	if !u.ended {
		u.end()
	}
}

func (u *s3Upload) end() {
	u.ended = true
	u.cancel(errUploadEnded)
	_ = u.wait() // cancelled, or done before the completion
	u.filling, u.spare, u.parts = nil, nil, nil
}

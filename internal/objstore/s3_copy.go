package objstore

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"
)

const (
	// partBytesMin is the least that S3 takes as a part that is not the last.
	partBytesMin = 5 << 20
	// copyPartBytes is the size of the parts that the server copies: large enough that requests are few, small enough that
	// one is answered soon. S3 takes up to 5 GiB.
	copyPartBytes = 64 << 20
	// copiesAtOnce is how many parts the server is asked to copy side by side. They cost this process nothing.
	copiesAtOnce = 4
	// sameBytesMax is the longest beginning that is compared instead of copied: see CopyRange.
	sameBytesMax = 64
)

// CopyRange implements [RangeCopier]:
//
//  1. What waits to be sent comes first, and must be a part of its own. If it is short, but the very bytes that lie before
//     the range in the other object (the magic number of a file format, as a rule), the range is extended to them instead,
//     and nothing is sent. Else it is filled up to the least part with bytes of the range, which are read for that.
//  2. The server copies the rest in parts, of which none is below the least.
//  3. What is too short for a part is read and waits to be sent with what follows.
//
// Every request names the version of the other object.
func (u *s3Upload) CopyRange(key, etag string, offset, n int64) error {
	switch {
	case u.ended:
		return fail(OpCopyRange, u.key, CodeInvalid, errUploadEnded)
	case u.failed != nil:
		return u.failed
	}
	err := checkCopy(key, etag, offset, n)
	if err == nil {
		err = u.copyRange(key, etag, offset, n)
	}
	if err != nil {
		u.failed = err
	}
	return err
}

func (u *s3Upload) copyRange(key, etag string, offset, n int64) error {
	full, err := u.store.full(OpCopyRange, key)
	if err != nil {
		return err
	}
	from := &s3Object{upload: u, key: key, full: full, etag: etag}
	if n < partBytesMin {
		return from.through(offset, n)
	}
	if waiting := int64(len(u.filling)); waiting > 0 && waiting < partBytesMin {
		same, err := from.precedes(offset)
		if err != nil {
			return err
		}
		if same {
			u.filling = u.filling[:0]
			u.size -= waiting
			offset, n = offset-waiting, n+waiting
		} else if missing := partBytesMin - waiting; n-missing < partBytesMin {
			return from.through(offset, n)
		} else if err := from.through(offset, missing); err != nil {
			return err
		} else {
			offset, n = offset+missing, n-missing
		}
	}
	if len(u.filling) > 0 {
		if u.id == nil {
			u.checksum = ""
		}
		if err := u.send(); err != nil {
			return err
		}
	}
	if err := from.byServer(offset, n); !errors.Is(err, errNoChecksum) {
		return err
	}
	return from.through(offset, n) // these parts take the numbers of the copied ones, which are forgotten
}

// errNoChecksum: the upload was begun with checksums of its parts, and the server does not tell that of a copied one.
var errNoChecksum = errors.New("the store tells no checksum of a part that it has copied")

// s3Object is the object that bytes are copied from.
type s3Object struct {
	upload    *s3Upload
	key, etag string
	full      *string
}

// precedes says whether the bytes before an offset are those that wait to be sent.
func (o *s3Object) precedes(offset int64) (bool, error) {
	waiting := int64(len(o.upload.filling))
	if waiting > sameBytesMax || waiting > offset || o.upload.id != nil {
		return false, nil
	}
	have, err := o.read(offset-waiting, waiting)
	return bytes.Equal(have, o.upload.filling), err
}

// through copies bytes through this process.
func (o *s3Object) through(offset, n int64) error {
	for n > 0 {
		b, err := o.read(offset, min(n, PartBytes))
		if err != nil {
			return err
		}
		if _, err := o.upload.Write(b); err != nil {
			return err
		}
		offset, n = offset+int64(len(b)), n-int64(len(b))
	}
	return nil
}

// read reads n bytes, at least one, of the version that is wanted.
func (o *s3Object) read(offset, n int64) (body []byte, err error) {
	s := o.upload.store
	_, err = s.retried(o.upload.ctx, OpCopyRange, o.key, n, moveRetries, func(ctx context.Context) error {
		out, err := s.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: o.full, IfMatch: &o.etag, Range: byteRange(offset, n)})
		if err != nil {
			return err
		}
		defer out.Body.Close()
		body, err = readBody(out)
		return err
	})
	if err == nil && int64(len(body)) != n {
		err = fail(OpCopyRange, o.key, CodeInvalid, ErrShort)
	}
	return body, o.judge(err)
}

func byteRange(offset, n int64) *string {
	return aws.String("bytes=" + strconv.FormatInt(offset, 10) + "-" + strconv.FormatInt(offset+n-1, 10)) // the end is inclusive
}

// judge says what the store's answer means here.
func (o *s3Object) judge(err error) error {
	switch {
	case errors.Is(err, errPrecondition):
		return fail(OpCopyRange, o.key, CodeMismatch, ErrMismatch)
	case errors.Is(err, errBehindEnd):
		return fail(OpCopyRange, o.key, CodeInvalid, ErrShort)
	}
	return err
}

// byServer has the server copy n bytes, enough for a part.
func (o *s3Object) byServer(offset, n int64) error {
	u := o.upload
	if err := u.wait(); err != nil {
		return err
	}
	if u.id == nil {
		u.checksum = "" // not every server has those of copied parts, and an upload has all or none
		if err := u.begin(); err != nil {
			return err
		}
	}
	count := max(n/copyPartBytes, 1) // the last part has up to twice the size
	first := len(u.parts)
	if int64(first)+count > partsMax {
		return fail(OpCopyRange, u.key, CodeInvalid, fmt.Errorf("more than %d parts", partsMax))
	}
	parts := make([]types.CompletedPart, count)
	g, ctx := errgroup.WithContext(u.ctx)
	g.SetLimit(copiesAtOnce)
	for i := range parts {
		start := offset + int64(i)*copyPartBytes
		size := int64(copyPartBytes)
		if i == len(parts)-1 {
			size = offset + n - start
		}
		g.Go(func() (err error) {
			parts[i], err = o.copyPart(ctx, int32(first+i+1), start, size)
			return o.judge(err)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	u.parts = append(u.parts, parts...)
	u.size += n
	return nil
}

func (o *s3Object) copyPart(ctx context.Context, number int32, offset, n int64) (part types.CompletedPart, err error) {
	u, s := o.upload, o.upload.store
	// Servers decode it as they decode a query, where + is a space.
	source := strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(s.bucket + "/" + *o.full))
	unusable := false
	_, err = s.retried(ctx, OpCopyRange, o.key, n, moveRetries, func(ctx context.Context) error {
		out, err := s.api.UploadPartCopy(ctx, &s3.UploadPartCopyInput{
			Bucket: &s.bucket, Key: u.full, UploadId: u.id, PartNumber: &number,
			CopySource: &source, CopySourceRange: byteRange(offset, n), CopySourceIfMatch: &o.etag,
		})
		if err != nil {
			return err
		}
		if out.CopyPartResult == nil {
			return errors.New("the store did not say what it copied")
		}
		part = types.CompletedPart{PartNumber: &number, ETag: out.CopyPartResult.ETag}
		if u.checksum == "" {
			return nil
		}
		// Some servers say none, some that of the whole other object, which is no part's.
		if sum := aws.ToString(out.CopyPartResult.ChecksumCRC32); len(sum) == base64.StdEncoding.EncodedLen(4) {
			part.ChecksumCRC32 = &sum
			return nil
		}
		unusable = true
		return nil
	})
	if err == nil && unusable {
		err = errNoChecksum
	}
	return part, err
}

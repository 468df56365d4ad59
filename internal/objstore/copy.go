package objstore

import (
	"errors"
	"fmt"
)

// RangeCopier is an [Upload] that can take bytes over from another object of the same store. On S3 the server copies them,
// on local disk the kernel does: they do not pass through this process, but for what a store cannot copy (ends of less than
// 5 MiB on S3). Call it through [CopyRange].
type RangeCopier interface {
	// CopyRange appends n bytes, from offset on, of the object at key, as Write would append them. The object must still
	// be of the version etag, else ErrMismatch, and hold all the bytes, else ErrShort. After an error the upload can only
	// be aborted.
	CopyRange(key, etag string, offset, n int64) error
}

var (
	// ErrNoCopy: the store cannot copy ranges. The upload is as it was: write the bytes instead.
	ErrNoCopy = errors.New("the store cannot copy between objects")
	// ErrShort: an object ends before the range that was to be copied.
	ErrShort = errors.New("the object ends before that")
)

// CopyRange appends a range of an object to an upload: see [RangeCopier]. Uploads that are none end in ErrNoCopy.
func CopyRange(u Upload, key, etag string, offset, n int64) error {
	c, ok := u.(RangeCopier)
	if !ok {
		return ErrNoCopy
	}
	return c.CopyRange(key, etag, offset, n)
}

func checkCopy(key, etag string, offset, n int64) error {
	switch {
	case offset < 0 || n < 0:
		return fail(OpCopyRange, key, CodeInvalid, fmt.Errorf("offset %d and length %d must not be negative", offset, n))
	case etag == "": // which S3 would take for no condition at all
		return fail(OpCopyRange, key, CodeMismatch, ErrMismatch)
	}
	return checkKey(OpCopyRange, key)
}

// CopyRange implements [RangeCopier].
func (u *scopedUpload) CopyRange(key, etag string, offset, n int64) error {
	if err := u.scope.Err(); err != nil {
		return fail(OpCopyRange, u.key, CodeFenced, err)
	}
	return CopyRange(u.Upload, key, etag, offset, n)
}

// CopyRange implements [RangeCopier].
func (u *instrumentedUpload) CopyRange(key, etag string, offset, n int64) error {
	err := CopyRange(u.Upload, key, etag, offset, n)
	u.store.count(OpCopyRange, err)
	return err
}

// CopyRange implements [RangeCopier].
func (u *memoryUpload) CopyRange(key, etag string, offset, n int64) error {
	if u.ended {
		return fail(OpCopyRange, u.key, CodeInvalid, errUploadEnded)
	}
	if err := checkCopy(key, etag, offset, n); err != nil {
		return err
	}
	o, err := u.memory.find(u.ctx, OpCopyRange, key)
	switch {
	case err != nil:
		return err
	case o.info.ETag != etag:
		return fail(OpCopyRange, key, CodeMismatch, ErrMismatch)
	case offset > o.info.Size || n > o.info.Size-offset:
		return fail(OpCopyRange, key, CodeInvalid, ErrShort)
	}
	u.body = append(u.body, o.body[offset:offset+n]...)
	return nil
}

package objstore

import (
	"io"
)

// copyStep is how much is copied between two looks at the scope: some milliseconds of work.
const copyStep = 16 << 20

// CopyRange implements [RangeCopier]. The kernel copies (copy_file_range), and a file system that can shares the blocks.
func (u *localUpload) CopyRange(key, etag string, offset, n int64) error {
	if u.ended {
		return fail(OpCopyRange, u.key, CodeInvalid, errUploadEnded)
	}
	if err := checkCopy(key, etag, offset, n); err != nil {
		return err
	}
	from, info, err := u.local.open(u.ctx, OpCopyRange, key)
	if err != nil {
		return err
	}
	defer from.Close()
	switch {
	case info.ETag != etag:
		return fail(OpCopyRange, key, CodeMismatch, ErrMismatch)
	case offset > info.Size || n > info.Size-offset:
		return fail(OpCopyRange, key, CodeInvalid, ErrShort)
	}
	if err := u.out.Flush(); err != nil {
		return failLocal(OpCopyRange, u.key, err)
	}
	if _, err := from.Seek(offset, io.SeekStart); err != nil {
		return failLocal(OpCopyRange, key, err)
	}
	for n > 0 {
		if err := Admitted(u.ctx); err != nil {
			return fail(OpCopyRange, u.key, CodeIO, err)
		}
		copied, err := u.temp.file.ReadFrom(io.LimitReader(from, min(n, copyStep)))
		if err == nil && copied == 0 {
			err = ErrShort // it was cut while it was copied
		}
		if err != nil {
			return failLocal(OpCopyRange, u.key, err)
		}
		n -= copied
		startWriteback(u.temp.file)
	}
	return nil
}

package deltalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tidemark/internal/objstore"
)

const lastCheckpointName = "_last_checkpoint"

// lastCheckpointJSON is the file that points near the end of the log. It is a hint: nothing depends on it.
type lastCheckpointJSON struct {
	Version       int64 `json:"version"`
	Size          int64 `json:"size"` // actions
	Parts         int64 `json:"parts,omitempty"`
	SizeInBytes   int64 `json:"sizeInBytes,omitempty"`
	NumOfAddFiles int64 `json:"numOfAddFiles,omitempty"`
}

// lastCheckpoint returns the version that _last_checkpoint names, or -1.
func (l *Log) lastCheckpoint(ctx context.Context) int64 {
	body, _, err := l.store.Get(ctx, l.key(lastCheckpointName))
	if err != nil {
		if !errors.Is(err, objstore.ErrNotFound) {
			l.log.Debug("_last_checkpoint cannot be read; listing the whole log", "error", err)
		}
		return -1
	}
	var hint lastCheckpointJSON
	if err := json.Unmarshal(body, &hint); err != nil || hint.Version < 0 {
		l.log.Warn("_last_checkpoint makes no sense; listing the whole log", "error", err)
		return -1
	}
	return hint.Version
}

// lastCheckpointAttempts: each lost race means that another checkpoint was just written.
const lastCheckpointAttempts = 3

// pointAt makes _last_checkpoint name a checkpoint, unless it already names that or a later one.
func (l *Log) pointAt(ctx context.Context, hint lastCheckpointJSON) error {
	body, err := json.Marshal(hint)
	if err != nil {
		return err
	}
	key := l.key(lastCheckpointName)
	var r objstore.Result
	for range lastCheckpointAttempts {
		old, info, err := l.store.Get(ctx, key)
		switch {
		case errors.Is(err, objstore.ErrNotFound):
			r = objstore.PutOnce(ctx, l.store, key, body, l.retry())
		case err != nil:
			return fmt.Errorf("table %s: reading _last_checkpoint: %w", l.table, err)
		default:
			var there lastCheckpointJSON
			if json.Unmarshal(old, &there) == nil && there.Version >= hint.Version {
				return nil
			}
			r = objstore.Replace(ctx, l.store, key, body, info.ETag, l.retry())
		}
		if r.Outcome == objstore.Applied {
			return nil
		}
		if !errors.Is(r.Err, objstore.ErrExists) && !errors.Is(r.Err, objstore.ErrMismatch) {
			break
		}
	}
	return fmt.Errorf("table %s: the checkpoint of version %d is written, but _last_checkpoint does not name it: %w", l.table, hint.Version, r.Err)
}

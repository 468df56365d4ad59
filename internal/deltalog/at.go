package deltalog

import (
	"context"

	"tidemark/internal/objstore"
)

// At returns one version of the log. One that was cleaned up, or is not there yet, is an objstore.ErrNotFound.
func (l *Log) At(ctx context.Context, version int64) (Commit, error) {
	return l.readCommit(ctx, logFile{Info: objstore.Info{Key: l.key(commitName(version))}, version: version})
}

package writer

import (
	"context"
	"testing"

	"tidemark/internal/objstore"
)

// vouching is a store whose versions vouch for their bytes, as those of S3 do.
type vouching struct{ objstore.Store }

func (s vouching) Create(ctx context.Context, key string) (objstore.Upload, error) {
	u, err := s.Store.Create(ctx, key)
	return vouchedUpload{u}, err
}

type vouchedUpload struct{ objstore.Upload }

func (u vouchedUpload) Complete(ctx context.Context) (objstore.Info, error) {
	info, err := u.Upload.Complete(ctx)
	info.Vouched = true
	return info, err
}

// The manifest records a version only if it says something about the bytes.
func TestTheManifestRecordsAVersionThatTheStoreVouchesFor(t *testing.T) {
	for _, vouched := range []bool{true, false} {
		s, d, tbl := events(t)
		if vouched {
			d.Store = vouching{d.Store}
		}
		w := mustClaim(t, Config{}, d)
		mustAppend(t, w, ids(t, 1, 2))
		mustSeal(t, w)
		g := latest(t, s, tbl, "rollout-0").Generations[0]
		info, err := s.Head(t.Context(), tbl.Name+"/"+g.Path)
		if err != nil {
			t.Fatal(err)
		}
		if vouched && g.ETag != info.ETag || !vouched && g.ETag != "" {
			t.Errorf("vouched for: %v; version %q is recorded, the file is of version %q", vouched, g.ETag, info.ETag)
		}
	}
}

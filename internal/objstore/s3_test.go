package objstore_test

import (
	"testing"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/storetest"
	"tidemark/internal/random"
	"tidemark/test/s3/s3test"
)

func openS3(t *testing.T, endpoint, root string) objstore.Store {
	t.Helper()
	s, err := objstore.Open(t.Context(), root, s3Options(endpoint))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func s3Options(endpoint string) objstore.Options {
	return objstore.Options{
		Clock: clock.System(), Random: random.New(), Log: hclog.NewNullLogger(),
		S3: objstore.S3Options{Endpoint: endpoint, PathStyle: true},
	}
}

func TestS3KeepsTheContract(t *testing.T) {
	server := s3test.Start(t)
	storetest.Run(t, func(t *testing.T) objstore.Store { return openS3(t, server.Endpoint, server.Root()) })
}

func TestFortyRoundsOfEightRacingCreatorsOnS3HaveOneWinnerEach(t *testing.T) {
	server := s3test.Start(t)
	storetest.RaceCreators(t, openS3(t, server.Endpoint, server.Root()), 40, 8)
}

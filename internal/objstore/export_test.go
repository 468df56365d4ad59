package objstore

import (
	"testing"
	"time"
)

// SetAnswerTimeout makes an S3 store impatient.
func SetAnswerTimeout(s Store, d time.Duration) { s.(*S3).answerMax = d }

// SetOpenTimeout makes opening an S3 store impatient until the test ends.
func SetOpenTimeout(t *testing.T, d time.Duration) {
	before := openRetries
	t.Cleanup(func() { openRetries = before })
	openRetries = before.answeredWithin(d)
}

package objstore

import "time"

// SetAnswerTimeout makes an S3 store impatient.
func SetAnswerTimeout(s Store, d time.Duration) { s.(*S3).answer = d }

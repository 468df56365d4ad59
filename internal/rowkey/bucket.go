package rowkey

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
)

// bucketPrefix starts the names of the shards of upsert tables: one shard per bucket.
const bucketPrefix = "bucket-"

// Bucket is the bucket of a key among a number of buckets, from 0.
func Bucket(key []byte, buckets int) int {
	return int(xxh3.Hash(key) % uint64(buckets))
}

// BucketShard is the name of the shard of a bucket, as in "bucket-0007".
func BucketShard(bucket int) string {
	return fmt.Sprintf("%s%04d", bucketPrefix, bucket)
}

// ParseBucketShard is the bucket of a shard of a table with a number of buckets. Only the name that [BucketShard] gives
// is accepted, so a bucket has one shard.
func ParseBucketShard(shard string, buckets int) (int, error) {
	digits, ok := strings.CutPrefix(shard, bucketPrefix)
	bucket, err := strconv.Atoi(digits)
	if !ok || err != nil || bucket < 0 || bucket >= buckets || BucketShard(bucket) != shard {
		return 0, fmt.Errorf("shard %q: the shards of this upsert table are %s to %s", shard, BucketShard(0), BucketShard(buckets-1))
	}
	return bucket, nil
}

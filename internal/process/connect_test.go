package process

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"tidemark/internal/objstore"
)

// rootOnly is a binary that takes a root and nothing else.
type rootOnly struct {
	RootFlags
	seen *objstore.S3Options
}

func (c *rootOnly) Run() error {
	*c.seen = c.S3.Options()
	return nil
}

func TestTheOptionsOfS3ComeFromFlagsOrFromTheEnvironment(t *testing.T) {
	want := objstore.S3Options{
		Endpoint: "http://127.0.0.1:7070", PathStyle: true, Tags: map[string]string{"team": "data", "cost": "42"}, Encryption: "aws:kms", KMSKey: "key",
	}
	parse := func(args ...string) (got objstore.S3Options, code int, errs string) {
		var out, complaints bytes.Buffer
		code = Main(Command{Name: "x"}, &rootOnly{seen: &got}, args, Streams{Out: &out, Err: &complaints})
		return got, code, complaints.String()
	}
	got, code, errs := parse("--s3-endpoint", want.Endpoint, "--s3-path-style", "--s3-tag", "team=data", "--s3-tag", "cost=42", "--s3-encryption", "aws:kms", "--s3-kms-key", "key")
	if code != ExitDone || !reflect.DeepEqual(got, want) {
		t.Errorf("flags: status %d, %s, %+v", code, errs, got)
	}
	for name, value := range map[string]string{
		"ENDPOINT": want.Endpoint, "PATH_STYLE": "true", "TAGS": "team=data;cost=42", "ENCRYPTION": "aws:kms", "KMS_KEY": "key",
	} {
		t.Setenv("TIDEMARK_S3_"+name, value)
	}
	if got, code, errs := parse(); code != ExitDone || !reflect.DeepEqual(got, want) {
		t.Errorf("environment: status %d, %s, %+v", code, errs, got)
	}
	if _, code, errs := parse("--s3-encryption", "rot13"); code != ExitUsage || !strings.Contains(errs, "rot13") {
		t.Errorf("an unknown encryption: status %d, %s", code, errs)
	}
}

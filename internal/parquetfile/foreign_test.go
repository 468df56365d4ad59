package parquetfile_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/columns/columnstest"
	"tidemark/internal/parquetfile"
	"tidemark/internal/schema"
)

// foreignRows are the rows that pyarrow wrote into each file of testdata/foreign, in the shape of a table.
var foreignRows = []string{
	`1|255|65535|4294967295|18446744073709551615|1.5/3ff8000000000000|true|""|"x"|0001|6162|-1|-1000|-1|-1|-105|-105|-1|[1,null]|{1,["q"]}|[{"k",1/3ff0000000000000}]|[[1],null,[]]`,
	`null|null|null|null|null|null|null|null|null|null|null|null|null|null|null|null|null|null|null|null|null|null`,
	`-128|0|0|0|0|NaN|false|"é"|"x"||6364|19782|1000|1|1|999999999|999999999999999999|99999999999999999999999999999999999999|[]|{null,null}|[]|[]`,
}

// Other engines choose other codecs, page versions and encodings, and store timestamps and decimals otherwise.
func TestFilesOfOtherEnginesReadAsTheirRows(t *testing.T) {
	paths, err := filepath.Glob("testdata/foreign/*.parquet")
	if err != nil || len(paths) < 5 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			mem, done := checked(t)
			defer done()
			body, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := parquetfile.OpenReader(context.Background(), put(t, body), "f", parquetfile.ReaderOptions{Mem: mem})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			records, err := readAll(context.Background(), r)
			defer release(records)
			if err != nil {
				t.Fatal(err)
			}
			table, err := schema.FromArrow(r.Schema())
			if err != nil {
				t.Fatal(err)
			}
			target := table.Arrow()
			var have []string
			for _, rec := range records {
				projected, err := schema.Project(context.Background(), mem, rec, target)
				if err != nil {
					t.Fatal(err)
				}
				have = append(have, columnstest.Rows(projected)...)
				projected.Release()
			}
			if !slices.Equal(have, foreignRows) {
				t.Fatalf("%s\nhave %s\nwant %s", target, strings.Join(have, "\n"), strings.Join(foreignRows, "\n"))
			}
		})
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shown is what `table show --json` says, as far as the tests look at it.
type shown struct {
	Table   string `json:"table"`
	ID      string `json:"id"`
	Version int64  `json:"version"`
	Shards  []struct {
		Shard  string `json:"shard"`
		Sealed uint64 `json:"sealed"`
		Merged uint64 `json:"merged"`
	} `json:"shards"`
}

// generations is how many generations of a table are merged, and fails the test if any is not.
func generations(t *testing.T, env []string, table string) uint64 {
	t.Helper()
	var n uint64
	for _, s := range decode[shown](t, must(t, env, "table", "show", table, "--json")).Shards {
		if s.Merged != s.Sealed {
			t.Errorf("shard %s of %s: sealed %d, merged %d", s.Shard, table, s.Sealed, s.Merged)
		}
		n += s.Merged
	}
	return n
}

func TestFlightsAppendedInThreeHundredGenerations(t *testing.T) {
	flights := input(t, "flights-3m.parquet")
	d := startDev(t)
	must(t, d.env, "table", "create", "flights", "--like", flights)
	must(t, d.env, "ingest", "flights", flights, "--shards", "4", "--rows-per-generation", "10000")
	must(t, d.env, "wait", "flights", "--timeout", "5m")

	if n := generations(t, d.env, "flights"); n != 300 {
		t.Errorf("%d generations, want 300", n)
	}
	table := filepath.Join(d.root, "flights")
	readBoth(t, table, `select count(*) n, sum(delay) delay, sum(distance) distance, any_value(typeof(date)) kind from t`,
		map[string]any{"n": 3000000, "delay": 20003603, "distance": 2194861208, "kind": "TIMESTAMP"})
	// Every row is there as often as in the file: both differences of multisets are empty.
	readBoth(t, table, fmt.Sprintf(`select
		(select count(*) from (select * from t except all select * from '%[1]s')) extra,
		(select count(*) from (select * from '%[1]s' except all select * from t)) missing`, flights),
		map[string]any{"extra": 0, "missing": 0})

	rows := strings.Count(must(t, d.env, "cat", "flights", "--columns", "origin,delay", "--limit", "7", "--format", "csv"), "\n")
	if rows != 8 {
		t.Errorf("cat --limit 7 printed %d lines, want a header and 7 rows", rows)
	}
}

func TestFlightsUpsertedKeepTheNewestOfEachRoute(t *testing.T) {
	flights := input(t, "flights-3m.parquet")
	d := startDev(t)
	must(t, d.env, "table", "create", "routes", "--like", flights, "--key", "origin,destination", "--buckets", "8", "--sequence", "date")
	must(t, d.env, "ingest", "routes", flights, "--rows-per-generation", "10000")
	must(t, d.env, "wait", "routes", "--timeout", "5m")

	table := filepath.Join(d.root, "routes")
	readBoth(t, table, `select count(*) n, sum(delay) delay, count(distinct origin || '-' || destination) keys from t`,
		map[string]any{"n": 3399, "delay": 78374, "keys": 3399})

	deletes := filepath.Join(t.TempDir(), "deletes.parquet")
	sql(t, fmt.Sprintf(`copy (select timestamp '2030-01-01' as date, null::bigint as delay, null::bigint as distance, origin,
		destination, 'd' as _op from (select distinct origin, destination from '%s' where origin = 'LAX')) to '%s'`, flights, deletes))
	must(t, d.env, "ingest", "routes", deletes)
	// What is sealed and not yet merged counts for a fresh read, whether the merge has come first or not.
	if fresh := strings.Count(must(t, d.env, "cat", "routes", "--fresh", "--format", "jsonl"), "\n"); fresh != 3333 {
		t.Errorf("cat --fresh after the deletes: %d rows, want 3333", fresh)
	}
	must(t, d.env, "wait", "routes", "--timeout", "5m")
	readBoth(t, table, `select count(*) n, count(*) filter (where origin = 'LAX') lax from t`, map[string]any{"n": 3333, "lax": 0})
}

func TestBirdstrikesNeedSanitizedNames(t *testing.T) {
	birds := input(t, "birdstrikes.csv")
	d := startDev(t)
	refused(t, d.env, 1, []string{"Airport Name", "--sanitize-names"}, "table", "create", "birds", "--like", birds)
	must(t, d.env, "table", "create", "birds", "--like", birds, "--sanitize-names")
	refused(t, d.env, 1, []string{"--sanitize-names"}, "ingest", "birds", birds)
	must(t, d.env, "ingest", "birds", birds, "--sanitize-names")
	must(t, d.env, "wait", "birds")
	readBoth(t, filepath.Join(d.root, "birds"), `select count(*) n from t`, map[string]any{"n": 10000})
}

func TestZipcodesKeepTheirLeadingZeros(t *testing.T) {
	zips := input(t, "zipcodes.csv")
	d := startDev(t)
	must(t, d.env, "table", "create", "prod/zipcodes", "--like", zips)
	must(t, d.env, "ingest", "prod/zipcodes", zips, "--shards", "2", "--rows-per-generation", "5000")
	must(t, d.env, "wait", "prod/zipcodes")
	readBoth(t, filepath.Join(d.root, "prod", "zipcodes"),
		`select count(*) n, min(zip_code) low, count(*) filter (where length(zip_code) = 5) five from t`,
		map[string]any{"n": 42049, "low": "00501", "five": 42049})
}

func TestMoviesLoadWithWidenedTypes(t *testing.T) {
	movies := input(t, "movies.json")
	d := startDev(t)
	must(t, d.env, "table", "create", "movies", "--like", movies, "--sanitize-names")
	must(t, d.env, "ingest", "movies", movies, "--sanitize-names")
	must(t, d.env, "wait", "movies")
	// Titles that are numbers in the file are text, exactly as written; nulls stay nulls.
	var rows []map[string]any
	body, err := os.ReadFile(movies)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &rows); err != nil {
		t.Fatal(err)
	}
	titles, votes := 0, 0.0
	for _, row := range rows {
		if row["Title"] != nil {
			titles++
		}
		if v, ok := row["IMDB Votes"].(float64); ok {
			votes += v
		}
	}
	readBoth(t, filepath.Join(d.root, "movies"),
		`select count(*) n, count("Title") titles, any_value(typeof("Title")) kind, sum("IMDB_Votes")::bigint votes from t`,
		map[string]any{"n": len(rows), "titles": titles, "kind": "VARCHAR", "votes": int64(votes)})
}

func TestIngestFromStandardInputAndEveryFormat(t *testing.T) {
	d := startDev(t)
	dir := t.TempDir()
	csv := filepath.Join(dir, "a.csv")
	if err := os.WriteFile(csv, []byte("id,name\n1,one\n2,two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := filepath.Join(dir, "b.jsonl")
	if err := os.WriteFile(lines, []byte("{\"id\":3,\"name\":\"three\"}\n{\"id\":4,\"name\":null}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	parquet := filepath.Join(dir, "c.parquet")
	sql(t, fmt.Sprintf("copy (select 5::bigint as id, 'five' as name) to '%s'", parquet))
	must(t, d.env, "table", "create", "mixed", "--like", csv)
	must(t, d.env, "ingest", "mixed", csv)
	must(t, d.env, "ingest", "mixed", lines)
	must(t, d.env, "ingest", "mixed", parquet)
	must(t, d.env, "wait", "mixed")
	readBoth(t, filepath.Join(d.root, "mixed"), `select count(*) n, sum(id)::bigint ids, count(name) named from t`,
		map[string]any{"n": 5, "ids": 15, "named": 4})
}

func TestOfTwoUpsertIngestsAtOnceTheLaterWinsAndTheEarlierCanBeRunAgain(t *testing.T) {
	flights := input(t, "flights-3m.parquet")
	d := startDev(t)
	must(t, d.env, "table", "create", "routes", "--like", flights, "--key", "origin,destination", "--buckets", "8", "--sequence", "date")
	id := decode[shown](t, must(t, d.env, "table", "show", "routes", "--json")).ID
	load := []string{"ingest", "routes", flights, "--rows-per-generation", "10000"}
	earlier := start(t, d.env, "tidemark", load...)
	eventually(t, "the earlier ingest has claimed its first bucket", func() bool {
		_, err := os.Stat(filepath.Join(d.root, "routes", "_shards", id, "bucket-0000", "manifest"))
		return err == nil
	})
	must(t, d.env, load...)
	<-earlier.exited
	if status, said := earlier.cmd.ProcessState.ExitCode(), earlier.output.String(); status != 1 || !strings.Contains(said, "ingest-") || !strings.Contains(said, "run this ingest again") {
		t.Errorf("the earlier ingest ended with status %d:\n%s", status, said)
	}
	must(t, d.env, load...)
	must(t, d.env, "wait", "routes", "--timeout", "5m")
	readBoth(t, filepath.Join(d.root, "routes"), `select count(*) n, sum(delay) delay from t`, map[string]any{"n": 3399, "delay": 78374})
}

package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// real is the path of one of the real input files, which lie beside the checkout.
func real(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the real input %s is not beside the checkout (%v)", name, err)
	}
	return path
}

func TestZipCodesKeepTheirLeadingZeros(t *testing.T) {
	src, err := Open(context.Background(), Options{}, File(real(t, "zipcodes.csv")))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	wantTypes(t, src, "zip_code utf8", "latitude float64", "longitude float64", "city utf8", "state utf8", "county utf8")
	rows, first := int64(0), ""
	for rec := range records(t, src) {
		if rows == 0 {
			first = rec.Column(0).(*array.String).Value(0)
		}
		rows += rec.NumRows()
	}
	if rows != 42_049 || first != "00501" {
		t.Errorf("%d rows, the first is %q", rows, first)
	}
}

func wantTypes(t *testing.T, src *Source, want ...string) {
	t.Helper()
	var got []string
	for _, f := range src.Schema().Fields() {
		got = append(got, f.Name+" "+f.Type.String())
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got columns\n%s", strings.Join(got, "\n"))
	}
}

func TestBirdStrikesNeedSanitizedNames(t *testing.T) {
	path := real(t, "birdstrikes.csv")
	_, err := Open(context.Background(), Options{}, File(path))
	if e := (*Error)(nil); !errors.As(err, &e) || e.Code != CodeBadNames {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{`"Airport Name"`, `"Cost Total $"`, "'$'", "--sanitize-names"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not mention %s: %v", part, err)
		}
	}
	src, err := Open(context.Background(), Options{Sanitize: true}, File(path))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	wantTypes(t, src, "Airport_Name utf8", "Aircraft_Make_Model utf8", "Effect_Amount_of_damage utf8", "Flight_Date date32",
		"Aircraft_Airline_Operator utf8", "Origin_State utf8", "Phase_of_flight utf8", "Wildlife_Size utf8", "Wildlife_Species utf8",
		"Time_of_day utf8", "Cost_Other int64", "Cost_Repair int64", "Cost_Total__ int64", "Speed_IAS_in_knots int64")
	rows := int64(0)
	for rec := range records(t, src) {
		rows += rec.NumRows()
	}
	if rows != 10_000 {
		t.Errorf("%d rows", rows)
	}
}

func TestMoviesLoadWithEveryValueAsWritten(t *testing.T) {
	path := real(t, "movies.json")
	src, err := Open(context.Background(), Options{Sanitize: true}, File(path))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want []map[string]json.RawMessage
	if err := json.Unmarshal(body, &want); err != nil {
		t.Fatal(err)
	}
	row := 0
	for rec := range records(t, src) {
		for i := range int(rec.NumRows()) {
			for name, raw := range want[row] {
				at := rec.Schema().FieldIndices(strings.ReplaceAll(name, " ", "_"))[0]
				if got := valueAsJSON(t, rec.Column(at), i); !sameJSON(got, string(raw)) {
					t.Fatalf("row %d, column %s: got %s, the file has %s", row+1, name, got, raw)
				}
			}
			row++
		}
	}
	if row != 3201 {
		t.Errorf("%d rows", row)
	}
	wantTypes(t, src, "Title utf8", "US_Gross int64", "Worldwide_Gross int64", "US_DVD_Sales int64", "Production_Budget int64",
		"Release_Date utf8", "MPAA_Rating utf8", "Running_Time_min int64", "Distributor utf8", "Source utf8", "Major_Genre utf8",
		"Creative_Type utf8", "Director utf8", "Rotten_Tomatoes_Rating int64", "IMDB_Rating float64", "IMDB_Votes int64")
}

func valueAsJSON(t *testing.T, col arrow.Array, row int) string {
	t.Helper()
	text, err := json.Marshal(col.GetOneForMarshal(row))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sameJSON takes a number that became a string for the same if the text is the same.
func sameJSON(got, want string) bool {
	var g, w any
	if json.Unmarshal([]byte(got), &g) != nil || json.Unmarshal([]byte(want), &w) != nil {
		return false
	}
	text, isText := g.(string)
	return g == w || isText && text == want
}

func TestFlightsAreReadWhole(t *testing.T) {
	path := real(t, "flights-3m.parquet")
	if testing.Short() {
		t.Skip("reads three million rows")
	}
	src, err := Open(context.Background(), Options{}, File(path))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	wantTypes(t, src, "date timestamp[us]", "delay int64", "distance int64", "origin large_utf8", "destination large_utf8")
	var rows, delay, distance int64
	for rec := range records(t, src) {
		rows += rec.NumRows()
		for _, v := range rec.Column(1).(*array.Int64).Int64Values() {
			delay += v
		}
		for _, v := range rec.Column(2).(*array.Int64).Int64Values() {
			distance += v
		}
	}
	if rows != 3_000_000 || delay != 20_003_603 || distance != 2_194_861_208 {
		t.Errorf("%d rows, delay %d, distance %d", rows, delay, distance)
	}
}

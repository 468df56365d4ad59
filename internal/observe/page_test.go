package observe

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

type row struct {
	name   string
	number int64
}

var rowOrders = []order[row]{
	{"name", func(r *row) (int64, string) { return 0, r.name }},
	{"number", func(r *row) (int64, string) { return r.number, "" }},
}

func pageOf(t interface{ Fatal(...any) }, rows []row, q Query) Page[row] {
	page, err := paged(rows, q, rowOrders, func(r *row) string { return r.name })
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func TestPagesShowEveryRowOnceForwardAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := make([]row, rapid.IntRange(0, 40).Draw(t, "rows"))
		for i := range rows {
			rows[i] = row{fmt.Sprintf("t%03d", i), rapid.Int64Range(-3, 3).Draw(t, "number")}
		}
		q := Query{Sort: rapid.SampledFrom([]string{"name", "number", ""}).Draw(t, "sort"), Desc: rapid.Bool().Draw(t, "desc"), Limit: rapid.IntRange(1, 7).Draw(t, "limit")}
		var pages []Page[row]
		seen := map[string]bool{}
		for {
			page := pageOf(t, rows, q)
			if page.First != len(seen) || page.Total != len(rows) {
				t.Fatalf("page begins at %d of %d, want %d of %d", page.First, page.Total, len(seen), len(rows))
			}
			for _, r := range page.Items {
				if seen[r.name] {
					t.Fatalf("%s is on two pages", r.name)
				}
				seen[r.name] = true
			}
			pages = append(pages, page)
			if page.Next == "" {
				break
			}
			q.Cursor = page.Next
		}
		if len(seen) != len(rows) {
			t.Fatalf("%d rows of %d were shown", len(seen), len(rows))
		}
		for i := len(pages) - 1; i > 0; i-- {
			q.Cursor = pages[i].Prev
			back := pageOf(t, rows, q)
			if fmt.Sprint(back.Items) != fmt.Sprint(pages[i-1].Items) {
				t.Fatalf("the page before page %d is %v, want %v", i, back.Items, pages[i-1].Items)
			}
		}
	})
}

func TestRowsThatComeAndGoLeaveThePageAfterACursorAlone(t *testing.T) {
	rows := []row{{"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}}
	first := pageOf(t, rows, Query{Limit: 2})
	changed := []row{{"a", 0}, {"aa", 0}, {"c", 0}, {"d", 0}} // b is gone, aa is new, both before the cursor
	next := pageOf(t, changed, Query{Limit: 2, Cursor: first.Next})
	if fmt.Sprint(next.Items) != "[{c 0} {d 0}]" {
		t.Fatalf("the second page is %v", next.Items)
	}
}

func TestWhatIsNoQueryIsRefusedByField(t *testing.T) {
	good := pageOf(t, []row{{"a", 0}, {"b", 0}}, Query{Limit: 1}).Next
	for field, q := range map[string]Query{
		"sort":   {Sort: "colour"},
		"limit":  {Limit: LimitMax + 1},
		"cursor": {Cursor: "%%%"},
		"search": {Search: string(make([]byte, 300))},
	} {
		_, err := paged([]row{}, q, rowOrders, func(r *row) string { return r.name })
		var bad *QueryError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%+v: %v, want an error of field %s", q, err, field)
		}
	}
	_, err := paged([]row{}, Query{Cursor: good, Sort: "number"}, rowOrders, func(r *row) string { return r.name })
	if err == nil {
		t.Error("a cursor of another order was taken")
	}
}

package schema_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"tidemark/internal/columns/columnstest"
	"tidemark/internal/schema"
)

// TestEvolve runs testdata/evolve: a table's columns, then incoming columns, as "name: type [not null]" lines.
func TestEvolve(t *testing.T) {
	datadriven.RunTest(t, "testdata/evolve", func(t *testing.T, d *datadriven.TestData) string {
		table, incoming, ok := strings.Cut(d.Input, "\n--\n")
		if !ok {
			d.Fatalf(t, "no -- between table and incoming columns")
		}
		merged, changed, err := schema.Evolve(columnsOf(t, table), columnsOf(t, incoming))
		var clash *schema.ClashError
		switch {
		case errors.As(err, &clash):
			return fmt.Sprintf("clash: %v\n", err)
		case err != nil:
			return err.Error() + "\n"
		case !changed:
			return "unchanged\n"
		}
		var b strings.Builder
		for _, f := range merged.Fields() {
			b.WriteString(f.String())
			if changes, ok := f.Metadata["delta.typeChanges"]; ok {
				b.WriteString(" " + string(changes))
			}
			b.WriteString("\n")
		}
		return b.String()
	})
}

// columnsOf reads columns as people write them; nested types are Delta's JSON.
func columnsOf(t *testing.T, text string) *schema.Schema {
	var fields []string
	for line := range strings.Lines(text) {
		name, typ, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			t.Fatalf("no column: %q", line)
		}
		typ, required := strings.CutSuffix(typ, " not null")
		if !strings.HasPrefix(typ, "{") {
			typ = `"` + typ + `"`
		}
		fields = append(fields, fmt.Sprintf(`{"name":%q,"type":%s,"nullable":%v,"metadata":{}}`, name, typ, !required))
	}
	return parse(t, `{"type":"struct","fields":[`+strings.Join(fields, ",")+`]}`)
}

// byName is a schema with its fields sorted by name, at every depth.
func byName(s *schema.Schema) string { return fmt.Sprint(sortFields(s.Fields())) }

func sortFields(fields []schema.Field) []schema.Field {
	out := slices.Clone(fields)
	for i := range out {
		out[i].Type = sortType(out[i].Type)
	}
	slices.SortFunc(out, func(a, b schema.Field) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func sortType(t schema.Type) schema.Type {
	t.Fields = sortFields(t.Fields)
	for _, below := range []**schema.Type{&t.Key, &t.Elem} {
		if *below != nil {
			sorted := sortType(**below)
			*below = &sorted
		}
	}
	return t
}

func TestEvolveDoesNotDependOnTheOrderOfColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, incoming := fromArrow(t, columnstest.Schema(t, 2)), fromArrow(t, columnstest.Schema(t, 2))
		reordered := schema.New(rapid.Permutation(incoming.Fields()).Draw(t, "order")...)
		one, changedOne, errOne := schema.Evolve(table, incoming)
		two, changedTwo, errTwo := schema.Evolve(table, reordered)
		if (errOne == nil) != (errTwo == nil) || changedOne != changedTwo {
			t.Fatalf("%v, %v; reordered %v, %v", changedOne, errOne, changedTwo, errTwo)
		}
		if errOne == nil && byName(one) != byName(two) {
			t.Fatalf("%s; reordered %s", one, two)
		}
	})
}

func TestEvolveSettlesAfterOneStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, incoming := fromArrow(t, columnstest.Schema(t, 2)), fromArrow(t, columnstest.Schema(t, 2))
		merged, changed, err := schema.Evolve(table, incoming)
		if err != nil {
			return
		}
		if !changed && merged != table {
			t.Fatal("unchanged, but another schema")
		}
		for _, s := range []*schema.Schema{table, incoming, merged} {
			again, changed, err := schema.Evolve(merged, s)
			var clash *schema.ClashError
			if errors.As(err, &clash) && strings.Contains(clash.Reason, "not null") {
				continue // the incoming rows lack a column that the table has always needed
			}
			if err != nil || changed {
				t.Fatalf("%s took %s and became %s, %v", merged, s, again, err)
			}
		}
	})
}

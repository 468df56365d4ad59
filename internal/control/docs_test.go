package control

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryRowOfTheTableOfLossesNamesTestsThatExist keeps docs/coordination.md honest.
func TestEveryRowOfTheTableOfLossesNamesTestsThatExist(t *testing.T) {
	top := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(top, "docs", "coordination.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)` \\(([a-z0-9/]+)\\)")
	rows := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| **") {
			continue
		}
		rows++
		tests := named.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("no test shows: %s", line)
		}
		for _, m := range tests {
			if !defines(t, filepath.Join(top, filepath.FromSlash(m[2])), m[1]) {
				t.Errorf("there is no %s in %s", m[1], m[2])
			}
		}
	}
	if rows != 7 {
		t.Errorf("%d rows, and the design has 7", rows)
	}
}

func defines(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(body), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}

package web

import (
	"testing"
	"time"
)

func TestNumbersReadAsPeopleWriteThem(t *testing.T) {
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(1000): "1,000", count(-1234567): "-1,234,567",
		size(0): "0 B", size(1023): "1023 B", size(1 << 20): "1.0 MiB", size(150 << 30): "150 GiB",
		span(0): "0 s", span(-time.Second): "0 s", span(200 * time.Second): "3 min 20 s", span(26 * time.Hour): "26 h 00 min", span(72 * time.Hour): "3 days",
		rate(0): "0", rate(2.34): "2.3", rate(12345.6): "12,345",
		age(5000, 0): "–", age(5000, 2000): "3 s", ago(5000, 2000): "3 s ago", until(5000, 65_000): "in 1 min 00 s", until(5000, 4000): "now",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, c := range []struct{ part, whole, want int64 }{{0, 0, 0}, {1, 0, 0}, {5, 10, 500}, {20, 10, 1000}, {-1, 10, 0}} {
		if got := per(c.part, c.whole); got != c.want {
			t.Errorf("%d of %d is drawn as %d, want %d", c.part, c.whole, got, c.want)
		}
	}
}

func TestSigningInLeadsNowhereElse(t *testing.T) {
	for path, want := range map[string]string{
		"": "/", "/": "/", "/tables?sort=age": "/tables?sort=age", "//evil.example/": "/", "/\\evil.example": "/", "/\t/evil.example": "/", "/x\\y": "/", "https://evil.example/": "/", "javascript:alert(1)": "/",
	} {
		if got := local(path); got != want {
			t.Errorf("%q leads to %q, want %q", path, got, want)
		}
	}
}

func TestTemplatesParse(t *testing.T) {
	if _, err := New(Config{}); err != nil {
		t.Fatal(err)
	}
}

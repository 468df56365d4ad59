package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTablePropertiesOverrideTheDefaultPolicy(t *testing.T) {
	p, err := DefaultPolicy().With(Overrides(map[string]string{
		"tidemark.policy.max_age":         "60",
		"tidemark.policy.max_wait":        "5m",
		"tidemark.policy.min_bytes":       "1GiB",
		"tidemark.policy.max_parallelism": "16",
		"delta.checkpointInterval":        "7",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultPolicy()
	want.MaxAge, want.MaxWait, want.MinBytes, want.MaxParallelism = time.Minute, 5*time.Minute, 1<<30, 16
	if p != want {
		t.Fatalf("got %+v, want %+v", p, want)
	}
}

func TestAPolicyValueThatCannotBeUsedIsNamedAndTheOthersHold(t *testing.T) {
	p, err := DefaultPolicy().With(map[string]string{
		"max_parallelism": "17", "max_age": "soon", "min_bytes": "-3", "min_generatons": "4", "min_generations": "4",
	})
	if p.MinGenerations != 4 || p.MaxParallelism != 4 || p.MaxAge != 300*time.Second || p.MinBytes != 64<<20 {
		t.Errorf("policy is %+v", p)
	}
	for _, key := range []string{"max_parallelism", "max_age", "min_bytes", "min_generatons"} {
		if !strings.Contains(err.Error(), "policy "+key+" = ") {
			t.Errorf("%s is not named in: %v", key, err)
		}
	}
	var invalid *PolicyError
	if !errors.As(err, &invalid) || invalid.Code() != "policy_invalid" {
		t.Errorf("no *PolicyError in %v", err)
	}
}

func TestADefaultPolicyReadsBack(t *testing.T) {
	p := DefaultPolicy()
	p.MaxWait, p.UnitBytes = 77*time.Second, 5<<20
	doc, err := MarshalPolicy(p.Values())
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParsePolicy(doc)
	if err != nil || back != p {
		t.Fatalf("%s reads back as %+v, %v", doc, back, err)
	}
	if _, err := ParsePolicy([]byte(`{"v":9}`)); err == nil {
		t.Error("a policy of an unknown version was accepted")
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add("max_age", "1h")
	f.Add("min_bytes", "9223372036854775807TiB")
	f.Fuzz(func(t *testing.T, key, value string) {
		p, _ := DefaultPolicy().With(map[string]string{key: value})
		for _, row := range fields {
			if n := *row.get(&p); n < row.min || n > row.max {
				t.Fatalf("%s = %q makes %s %d", key, value, row.name, n)
			}
		}
	})
}

func FuzzParsePolicy(f *testing.F) {
	doc, _ := MarshalPolicy(map[string]string{"max_age": "1h", "min_bytes": "1GiB"})
	f.Add(doc)
	f.Add([]byte(`{"v":1,"policy":{"max_wait":"-1s","nobody":"knows"}}`))
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		p, _ := ParsePolicy(doc) // usable whatever the error is
		for _, row := range fields {
			if n := *row.get(&p); n < row.min || n > row.max {
				t.Fatalf("%s makes %s %d", doc, row.name, n)
			}
		}
	})
}

func FuzzParseUnit(f *testing.F) {
	b, _ := Unit{ID: "u", Kind: KindMerge, Table: "t", Groups: AllGroups, Order: "63-1"}.Marshal()
	f.Add(b)
	f.Add([]byte(`{"v":1,"table":"t","kind":"cleanup","groups":"log"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := ParseUnit(b)
		if err == nil && (u.Table == "" || u.Groups == 0 || u.Groups&^(AllGroups|Log) != 0) {
			t.Fatalf("%s was accepted as %+v", b, u)
		}
	})
}

func FuzzParseOutcome(f *testing.F) {
	b, _ := Next(nil, Run{Execution: "e", Failure: &Failure{Code: "x", Class: Data}}).Marshal()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseOutcome(b)
		if err != nil {
			return
		}
		o.Blocked("s", 0, 1)
		o.heldUntil(1)
		Next(&o, Run{Execution: "e"})
	})
}

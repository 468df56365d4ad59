package sim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// childVariable is set in the environment of a child of inChild.
const childVariable = "TIDEMARK_SIM_CHILD"

// seedsDefault is how many seeds an ordinary test run takes.
const seedsDefault = 20

// repeatsDefault is how many seeds are run twice.
const repeatsDefault = 5

// shrinksMax is how many failing seeds of one run are shrunk.
const shrinksMax = 2

func TestMain(m *testing.M) {
	if status, ok := inChild(); ok {
		os.Exit(status)
	}
	// One thread makes a seed repeat itself as far as the runtime allows.
	runtime.GOMAXPROCS(1)
	runtime.MemProfileRate = 0 // its samples are drawn from the same randomness
	os.Exit(m.Run())
}

func number(name string, otherwise uint64) uint64 {
	n, err := strconv.ParseUint(os.Getenv(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

func TestOneSeed(t *testing.T) {
	seed := number("TIDEMARK_SIM_SEED", 0)
	if seed == 0 {
		t.Skip("set TIDEMARK_SIM_SEED to replay a seed")
	}
	o := Options{Log: os.Getenv("TIDEMARK_SIM_LOG") != ""}
	if n := number("TIDEMARK_SIM_MUTANT", 0); n > 0 {
		o.Mutant = mutants[n-1]
	}
	r := Run(t, seed, o)
	t.Logf("\n%s", r.Trace)
	t.Logf("%d events, %d commits, %d rows, %s, hash %x", r.Events, r.Commits, r.Rows, r.Virtual, r.Hash)
	for _, f := range r.Failures {
		t.Error(f)
	}
}

// TestEveryHistoryKeepsTheInvariants runs seeds: few by default, TIDEMARK_SIM_SEEDS of them from TIDEMARK_SIM_FROM on.
func TestEveryHistoryKeepsTheInvariants(t *testing.T) {
	from, seeds := number("TIDEMARK_SIM_FROM", 1), number("TIDEMARK_SIM_SEEDS", seedsDefault)
	began, events, commits, rows := time.Now(), 0, 0, 0
	var virtual time.Duration
	var failing []string
	for seed := from; seed < from+seeds; seed++ {
		r := Run(t, seed, Options{})
		events, commits, rows, virtual = events+r.Events, commits+r.Commits, rows+r.Rows, virtual+r.Virtual
		if len(r.Failures) > 0 {
			failing = append(failing, fmt.Sprint(seed))
			if len(failing) <= shrinksMax {
				r = Shrink(t, r, Options{})
			}
			t.Error(report(r))
		}
		if (seed-from+1)%50 == 0 {
			fmt.Fprintf(os.Stderr, "sim: %d seeds, %s, failing: %s\n", seed-from+1, time.Since(began).Round(time.Second), strings.Join(failing, " "))
		}
	}
	t.Logf("%d seeds in %s: %d events, %d commits, %d rows, %s of virtual time; failing: %s", seeds, time.Since(began).Round(time.Millisecond),
		events, commits, rows, virtual.Round(time.Second), strings.Join(failing, " "))
}

// foundBugs are the seeds that have found bugs, by the table in docs/correctness.md. Seeds move with the plan and with the
// system, so each bug has a test of its own as well; these are run again because they were unkind once.
var foundBugs = []uint64{2193, 21458, 606336, 606533, 606740, 608094, 608591}

func TestSeedsThatFoundBugsFindNoneNow(t *testing.T) {
	for _, seed := range foundBugs {
		if r := Run(t, seed, Options{}); len(r.Failures) > 0 {
			t.Error(report(r))
		}
	}
}

// report is what a person needs of a failing seed.
func report(r Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d:\n", r.Seed)
	for _, f := range r.Failures {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	lines := strings.Split(r.Trace, "\n")
	if extra := len(lines) - 60; extra > 0 {
		fmt.Fprintf(&b, "  … %d lines before\n", extra)
		lines = lines[extra:]
	}
	for _, l := range lines {
		fmt.Fprintf(&b, "%s\n", l)
	}
	fmt.Fprintf(&b, "replay: TIDEMARK_SIM_SEED=%d go test ./test/sim -run TestOneSeed -v\n", r.Seed)
	return b.String()
}

// A seed repeats itself, event by event, however busy the machine is.
func TestASeedRepeatsItself(t *testing.T) {
	if !reseed(1) {
		t.Skip("the runtime's randomness is out of reach here")
	}
	from := number("TIDEMARK_SIM_FROM", 1)
	for seed := from; seed < from+number("TIDEMARK_SIM_REPEATS", repeatsDefault); seed++ {
		a, b := Run(t, seed, Options{Events: true}), Run(t, seed, Options{Events: true})
		if a.Hash == b.Hash {
			continue
		}
		x, y := strings.Split(a.Trace, "\n"), strings.Split(b.Trace, "\n")
		for i := range min(len(x), len(y)) {
			if x[i] != y[i] {
				t.Errorf("seed %d differs first at line %d of %d\n%s\n%s", seed, i, len(x), x[i], y[i])
				break
			}
		}
	}
}

// What a seed does in a process of its own is what it does here, after others.
func TestASeedRepeatsItselfInAnotherProcess(t *testing.T) {
	if !reseed(1) || os.Getenv(childVariable) == "" {
		t.Skip("the runtime's randomness is out of reach here")
	}
	from := number("TIDEMARK_SIM_FROM", 20)
	for seed := from; seed < from+number("TIDEMARK_SIM_REPEATS", repeatsDefault); seed++ {
		here := Run(t, seed, Options{})
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "TestOneSeed", "-test.v")
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, childVariable) }), fmt.Sprint("TIDEMARK_SIM_SEED=", seed))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("seed %d in a process of its own: %v\n%s", seed, err, out)
		}
		if want := fmt.Sprintf("hash %x\n", here.Hash); !strings.Contains(string(out), want) {
			t.Errorf("seed %d has %s here, and in a process of its own:\n%s", seed, want, out[max(0, len(out)-300):])
		}
	}
}

// TestMutants looks for the first seed that catches each deliberate bug, and prints the table of docs/correctness.md.
// TIDEMARK_SIM_MUTANT names one by its number.
func TestMutants(t *testing.T) {
	seeds := number("TIDEMARK_SIM_MUTANT_SEEDS", 0)
	if seeds == 0 {
		t.Skip("set TIDEMARK_SIM_MUTANT_SEEDS to look for the seeds that catch each mutant")
	}
	only := number("TIDEMARK_SIM_MUTANT", 0)
	fmt.Println("| bug | seed | how it shows |\n| --- | --- | --- |")
	for i, mutant := range mutants {
		if only != 0 && int(only) != i+1 {
			continue
		}
		seed, failure := firstCaught(t, mutant, seeds)
		if failure == nil {
			t.Errorf("%q is not caught by %d seeds", mutant, seeds)
			continue
		}
		fmt.Printf("| %s | %d | %v |\n", mutant, seed, failure)
	}
}

// firstCaught is the first seed that catches a mutant by something that must never be, rather than by what does not happen
// in the end.
func firstCaught(t *testing.T, mutant string, seeds uint64) (uint64, error) {
	for seed := uint64(1); seed <= seeds; seed++ {
		for _, failure := range Run(t, seed, Options{Mutant: mutant}).Failures {
			if !errors.Is(failure, errNotQuiet) {
				return seed, failure
			}
		}
	}
	return 0, nil
}

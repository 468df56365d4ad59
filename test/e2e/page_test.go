package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/table"
)

// address is where a development server can be reached.
func (d *dev) address(t *testing.T) string {
	t.Helper()
	return "http://" + d.beacon(t).Listen
}

type beacon struct {
	Etcd   []string `json:"etcd"`
	Listen string   `json:"listen"`
}

func (d *dev) beacon(t *testing.T) beacon {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(d.root, "_tidemark", "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	return decode[beacon](t, string(body))
}

// pages are every page of a cluster with a table t/visits, by address, with what each must say.
var pages = map[string]string{
	"/": "Longest waiting", "/tables": "t/visits", "/tables/t%2Fvisits": "Why not now?", "/turns": "Turns",
	"/executors": "dev-executor-2", "/masters": "dev-master", "/failures": "Failures",
	"/policy": "Review changes",
}

// startPaged starts a server with a table t/visits of one shard, in which nothing is merged by itself.
func startPaged(t *testing.T) (*dev, *browser) {
	d := startDev(t)
	d.visits(t, 1)
	b := newBrowser(t, d.address(t))
	return d, b
}

// visits ingests a few rows into t/visits and makes it if it is not there.
func (d *dev) visits(t *testing.T, n int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "visits.csv")
	if err := os.WriteFile(path, []byte(fmt.Sprintf("who,pages\nada,%d\nbob,%d\n", n, n+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := tidemark(t, d.env, "table", "show", "t/visits"); r.status != 0 {
		must(t, d.env, "table", "create", "t/visits", "--like", path)
	}
	must(t, d.env, "ingest", "t/visits", path)
}

func TestPageEveryPageRendersAtEveryWidthWithoutSidewaysScrolling(t *testing.T) {
	_, b := startPaged(t)
	for path, says := range pages {
		for _, width := range []int64{360, 800, 1280, 3840} {
			b.size(width, 900)
			b.open(path)
			b.says(says)
			if wide := evaluate[int64](b, "document.documentElement.scrollWidth"); wide > width {
				t.Errorf("%s at %d: the page is %d wide", path, width, wide)
			}
			if n := evaluate[int](b, `document.querySelectorAll("h1").length`); n != 1 {
				t.Errorf("%s: %d headings of the first order", path, n)
			}
		}
	}

}

func TestPageFollowsAMergeWithoutBeingLoadedAgain(t *testing.T) {
	d, b := startPaged(t)
	b.open("/tables/t%2Fvisits")
	b.says("CREATE TABLE")
	evaluate[int](b, "window.same = 1")
	asked, did := b.act("#live", "Merge now", "Merge now")
	if !strings.Contains(asked, "t/visits") || !strings.Contains(did, "A merge of table t/visits is asked for") {
		t.Errorf("asked %q, did %q", asked, did)
	}
	b.wait("the merge is among the commits", `document.querySelector("#commit-1")?.innerText.includes("WRITE")`)
	b.wait("nothing is pending", `document.querySelector(".tiles").innerText.includes("nothing is pending")`)
	if !evaluate[bool](b, "window.same === 1") {
		t.Error("the page was loaded again")
	}
	// What somebody is doing stays as it is while the page follows.
	b.do(chromedp.Focus("#policy-max_age"), chromedp.SendKeys("#policy-max_age", "9"))
	d.visits(t, 7)
	b.wait("the new generation is seen", `/\b[1-9]\d* generations/.test(document.querySelector(".tiles").innerText)`)
	if v := evaluate[string](b, `document.activeElement.id + "=" + document.activeElement.value`); v != "policy-max_age=9" {
		t.Errorf("the field being edited is %s", v)
	}
}

func TestPageActionsAskFirstAndSayWhatTheyDid(t *testing.T) {
	d, b := startPaged(t)
	b.open("/tables/t%2Fvisits")

	if _, did := b.act("#live", "Pause", "Pause"); !strings.Contains(did, "is paused") {
		t.Errorf("pause: %s", did)
	}
	if _, did := b.act("#live", "Resume", "Resume"); !strings.Contains(did, "is resumed") {
		t.Errorf("resume: %s", did)
	}

	b.wait("the policy is there", `document.querySelector("#policy-max_age")`)
	b.do(chromedp.SetValue("#policy-max_age", "77s"))
	if _, did := b.act("#policy", "Review changes", "Change it"); !strings.Contains(did, "max_age = 77s") {
		t.Errorf("policy: %s", did)
	}
	b.wait("the editor shows it", `document.querySelector("#policy-max_age").value === "1m17s"`)

	// A generation is damaged; it fails, is tried again, and is skipped.
	damage(t, d.root)
	b.act("#live", "Merge now", "Merge now")
	b.wait("the failure is shown", `document.querySelector(".failure.attention")`)
	if _, did := b.act(".failure", "Retry", "Retry"); did == "" {
		t.Error("retry said nothing")
	}
	b.open("/failures")
	b.wait("it failed again", `document.querySelector(".failure.attention")`)
	if n := evaluate[string](b, `document.querySelector("#count-attend").innerText`); n != "1" {
		t.Errorf("the head of the page counts %s failures", n)
	}
	b.skip(t)
	b.wait("nothing fails any more", `document.querySelector("#live").innerText.includes("Nothing fails.")`)

	b.open("/executors")
	if _, did := b.act("#executor-dev-executor-1", "Drain", "Drain"); !strings.Contains(did, "claims nothing more") {
		t.Errorf("drain: %s", did)
	}
	b.wait("it is drained", `document.querySelector("#executor-dev-executor-1").innerText.includes("drained")`)
	b.act("#executor-dev-executor-1", "Claim again", "Claim again")
	b.wait("it serves again", `document.querySelector("#executor-dev-executor-1").innerText.includes("serving")`)

	d.holdTurn(t)
	b.open("/turns")
	b.says("t/visits")
	if _, did := b.act(".turn", "Cancel", "Cancel the execution"); !strings.Contains(did, "held-by-the-test") {
		t.Errorf("cancel: %s", did)
	}
	b.wait("the turn is gone", `!document.querySelector(".turn")`)
}

func TestPageEditsTheDefaultPolicyAndTablesTakeItFromThere(t *testing.T) {
	_, b := startPaged(t)
	b.open("/")
	b.click("nav", "Policy")
	b.wait("the policy is there", `document.querySelector("#policy-max_wait")`)
	origin := func(name string) string {
		return evaluate[string](b, fmt.Sprintf(`document.querySelector("#policy-%s").closest(".row").querySelector(".origin").innerText`, name))
	}
	if from := origin("max_wait"); from != "built in" {
		t.Errorf("max_wait comes from %q", from)
	}
	// What makes no sense is refused before it is asked whether to do it.
	b.do(chromedp.SetValue("#policy-max_wait", "soon"))
	b.click("#policy", "Review changes")
	b.wait("it is refused", `document.querySelector("dialog[open] .problem")?.innerText.includes("max_wait")`)
	b.click("dialog", "Close")

	b.do(chromedp.SetValue("#policy-max_wait", "2m"))
	asked, did := b.act("#policy", "Review changes", "Change it")
	if !strings.Contains(asked, "default policy") || !strings.Contains(did, "The default policy now has max_wait = 2m") {
		t.Errorf("asked %q, did %q", asked, did)
	}
	b.wait("the editor shows it", `document.querySelector("#policy-max_wait").value === "2m0s"`)
	if from := origin("max_wait"); from != "set here" {
		t.Errorf("max_wait comes from %q", from)
	}
	b.open("/tables/t%2Fvisits")
	b.wait("a table takes it", `document.querySelector("#policy-max_wait")?.placeholder === "2m0s"`)
	if from := origin("max_wait"); from != "default policy" {
		t.Errorf("max_wait of the table comes from %q", from)
	}
	b.click("#policy", "default policy")
	b.wait("the policy is there", `location.pathname === "/policy" && document.querySelector("#policy-max_wait")`)
	evaluate[string](b, `document.querySelector("#policy-max_wait").value = ""`)
	if _, did := b.act("#policy", "Review changes", "Change it"); !strings.Contains(did, "no longer sets max_wait") {
		t.Errorf("unset: %s", did)
	}
	b.wait("the built-in value shows through", `document.querySelector("#policy-max_wait").closest(".row").innerText.includes("built in")`)
}

// skip skips the failing generation. Another retry may be under way, and then the page says so and it is asked again.
func (b *browser) skip(t *testing.T) {
	t.Helper()
	reason := chromedp.SendKeys("#reason", "the disk lost it")
	asked, did := b.act(".failure", "Skip", "Skip it for good", reason)
	if !strings.Contains(asked, "not part of the table") || !strings.Contains(did, "is skipped") {
		t.Errorf("asked %q, did %q", asked, did)
	}
}

// damage overwrites every sealed generation of t/visits.
func damage(t *testing.T, root string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "t", "visits", "_shards", "*", "*", "gen", "*.parquet"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no generations to damage: %v", err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range body {
			body[i] ^= 0x5a
		}
		if err := os.WriteFile(file, body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// holdTurn holds a turn of t/visits as an execution would, one that never advances.
func (d *dev) holdTurn(t *testing.T) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: d.beacon(t).Etcd, DialTimeout: readyTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	turn, err := json.Marshal(map[string]any{
		"v": 1, "execution": "held-by-the-test", "executor": "dev-executor-1", "token": "none", "turns": "0008", "started_ms": time.Now().UnixMilli(),
		"unit": map[string]any{"v": 1, "id": "u", "kind": "merge", "table": "t/visits", "groups": []int{3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), etcd.KeysOf("default").Turn("t/visits", 3), string(turn)); err != nil {
		t.Fatal(err)
	}
}

func TestPageListsAreSearchedSortedAndCutByTheServer(t *testing.T) {
	d, b := startPaged(t)
	d.fleet(t, 130)
	b.open("/tables")
	b.says("of 131")
	if rows := evaluate[int](b, `document.querySelectorAll("tbody tr").length`); rows != 50 {
		t.Errorf("%d rows on a page", rows)
	}
	b.wait("what has waited longest is first", `document.querySelector("tbody tr").innerText.includes("t/visits")`)
	b.click("thead", "Table")
	b.wait("names ascend", `document.querySelector("tbody tr").innerText.includes("table-000")`)
	b.click("thead", "Table")
	b.wait("names descend", `document.querySelector("tbody tr").innerText.includes("t/visits")`)
	b.click(".pager", "Next →")
	b.wait("the second page is shown", `document.querySelector("tbody tr").innerText.includes("table-080")`)
	// The page follows from where it is.
	b.wait("the address says where", `location.search.includes("cursor")`)
	b.click(".pager", "← Previous")
	b.wait("the first page is shown", `document.querySelector("tbody tr").innerText.includes("t/visits")`)
	b.do(chromedp.KeyEvent("/"), chromedp.KeyEvent("table-01"))
	b.wait("ten tables are found", `document.querySelectorAll("tbody tr").length === 10`)
	if id := evaluate[string](b, "document.activeElement.id"); id != "search" {
		t.Errorf("the focus is on %q", id)
	}
	b.do(chromedp.NavigateBack())
	b.wait("back is where it was", `document.querySelectorAll("tbody tr").length === 50`)
}

// fleet makes n tables, fleet/table-000 and so on, as `tidemark table create` does.
func (d *dev) fleet(t *testing.T, n int) {
	t.Helper()
	store, err := objstore.Open(t.Context(), d.root, objstore.Options{Clock: clock.System(), Random: random.New(), Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.Parse(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("fleet/table-%03d", i)
		if _, err := table.Create(t.Context(), store, name, table.CreateOptions{Schema: s}, table.Deps{Clock: clock.System(), Random: random.New()}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPageAsksForATokenAndAViewerCannotAct(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("vic viewer viewer-token-0123456789\nola operator operator-token-0123456789\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startDev(t, "--tokens", tokens)
	d.visits(t, 1)
	b := newBrowser(t, d.address(t))
	b.do(chromedp.Navigate(b.base + "/tables/t%2Fvisits"))
	b.wait("it asks for a token", `document.querySelector("#token")`)
	signIn := func(token string) {
		b.do(chromedp.SendKeys("#token", token+"\r"))
		b.wait("the page is live", `document.querySelector("#state")?.dataset.kind === "live"`)
	}
	signIn("viewer-token-0123456789")
	b.says("vic, viewer")
	b.wait("the policy is there", `document.querySelector("#policy-max_age")`)
	if n := evaluate[int](b, `document.querySelectorAll("main button").length`); n != 0 {
		t.Errorf("a viewer is offered %d buttons", n)
	}
	b.click("footer", "Sign out")
	b.wait("it asks for a token", `document.querySelector("#token")`)
	signIn("operator-token-0123456789")
	b.open("/tables/t%2Fvisits")
	if _, did := b.act("#live", "Merge now", "Merge now"); did == "" {
		t.Error("an operator cannot merge")
	}
	if status, body := fetch(t, b.base+"/status"); status != 401 || strings.Contains(body, "token-0123456789") {
		t.Errorf("without a token: %d %s", status, body)
	}
}

// pictureBytesMax keeps the repository small.
const pictureBytesMax = 200 << 10

// TestPagePictures draws the pictures of the documents, for `make screenshots` into the directory that TIDEMARK_PICTURES
// names, and then with half a minute of history on the charts.
func TestPagePictures(t *testing.T) {
	dir, history := os.Getenv("TIDEMARK_PICTURES"), 45*time.Second
	if dir == "" {
		dir, history = t.TempDir(), 0
	}
	d := startDev(t, "--demo", "--demo-rate", "40000", "--executors", "2")
	b := newBrowser(t, d.address(t))
	d.visits(t, 1)
	damage(t, d.root)
	b.open("/tables/t%2Fvisits")
	b.act("#live", "Merge now", "Merge now")
	b.wait("the failure is shown", `document.querySelector(".failure.attention")`)
	time.Sleep(history)
	for _, p := range []struct {
		name, path    string
		width, height int64
		dark          bool
	}{
		{"overview-light", "/", 1280, 1000, false}, {"overview-dark", "/", 1280, 1000, true}, {"overview-narrow", "/", 360, 1100, false},
		{"tables-light", "/tables", 1280, 420, false},
		{"table-light", "/tables/demo%2Forders", 1280, 1250, false}, {"table-dark", "/tables/demo%2Forders", 1280, 1250, true}, {"table-narrow", "/tables/demo%2Forders", 360, 1100, true},
		{"failures-light", "/failures", 1280, 420, false}, {"executors-dark", "/executors", 1280, 420, true}, {"masters-light", "/masters", 1280, 420, false},
	} {
		b.dark(p.dark)
		b.size(p.width, p.height)
		b.open(p.path)
		if strings.HasPrefix(p.path, "/tables/") {
			b.wait("explained", `!document.querySelector("#explain").innerText.includes("Asking")`)
			b.wait("something is pending", `document.querySelector("rect.merged")`)
		}
		time.Sleep(2 * time.Second) // the charts are drawn, and bars have stopped moving
		path := filepath.Join(dir, p.name+".png")
		b.picture(path)
		if info, err := os.Stat(path); err != nil || info.Size() > pictureBytesMax {
			t.Errorf("%s: %v, %d bytes", p.name, err, info.Size())
		}
	}
}

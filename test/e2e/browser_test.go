package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browser is one tab of a headless Chromium. Its methods end the test when the page does not do what they say, and so
// does, at the end of the test, anything that the page wrote to its console as a warning or an error.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string // address of the server

	mu     sync.Mutex // guards spoken
	spoken []string   // what the console says that it should not
}

// chromium is the browser's binary. Without it the test is skipped, or fails where everything is required to run.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("TIDEMARK_REQUIRE_ALL") != "" {
		t.Fatal("a browser is required here: install chromium")
	}
	t.Skip("needs chromium")
	return ""
}

func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(readyTimeout), // of a loaded machine
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	allocated, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocated)
	b := &browser{t: t, ctx: ctx, base: base}
	messages := chromedp.Console(ctx)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" || m.Type == "warning" {
				b.mu.Lock()
				b.spoken = append(b.spoken, m.String()+" "+m.URL)
				b.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		closeTab()
		end()
		<-heard
		for _, line := range b.spoken {
			t.Errorf("the console says: %s", line)
		}
	})
	b.size(1280, 900)
	return b
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, readyTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("the browser: %v\n%s", err, b.text())
	}
}

// open shows a page and waits until it follows the server's changes.
func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
	b.wait("the page is live", `document.querySelector("#state")?.dataset.kind === "live"`)
}

// evaluate is the value of an expression on the page.
func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// wait polls an expression until it is true.
func (b *browser) wait(what, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(readyTimeout); ; time.Sleep(pollInterval) {
		// In the middle of a navigation there is no page to ask.
		if ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")")); err == nil && ok {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("waited in vain: %s\n%s", what, b.text())
		}
	}
}

// says waits until the page shows a text.
func (b *browser) says(text string) {
	b.t.Helper()
	b.wait("the page says "+text, fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// text is what the page shows, for messages of failures.
func (b *browser) text() string {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// click clicks the first button or link of a text, within a part of the page.
func (b *browser) click(within, text string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(%q)].flatMap(x => [...x.querySelectorAll("button:not(:disabled), a, summary")]).find(x => x.innerText.trim() === %q)`, within, text)
	b.wait("there is "+text+" in "+within, find)
	evaluate[bool](b, "("+find+").click() || true")
}

// act does an action as a person does: asks for it, reads what would be done, confirms, reads what was done, and closes.
// It returns both sentences.
func (b *browser) act(within, button, confirm string, fill ...chromedp.Action[chromedp.Void]) (asked, did string) {
	b.t.Helper()
	b.click(within, button)
	b.wait("the question is open", `document.querySelector("dialog[open] .says, dialog[open] .problem")`)
	asked = evaluate[string](b, `document.querySelector("dialog .says, dialog .problem").innerText`)
	b.do(fill...)
	b.click("dialog", confirm)
	b.wait("the answer is there", `document.querySelector("dialog[open] [data-done]")`)
	did = evaluate[string](b, `document.querySelector("dialog .says, dialog .problem").innerText`)
	if evaluate[bool](b, `!!document.querySelector("dialog .problem")`) {
		b.t.Fatalf("%s was refused: %s", button, did)
	}
	b.click("dialog", "Close")
	b.wait("the dialog is closed", `!document.querySelector("dialog").open`)
	return asked, strings.TrimPrefix(did, "✓ ")
}

func (b *browser) size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// dark chooses the colours that the person is said to prefer.
func (b *browser) dark(dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// picture writes what is in the window to a file.
func (b *browser) picture(path string) {
	b.t.Helper()
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(path, image, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"tidemark/internal/api"
	"tidemark/internal/control"
	"tidemark/internal/observe"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

const (
	// renderTimeout bounds what one page may read from storage.
	renderTimeout = 20 * time.Second
	// formBytesMax bounds a form: the largest is a policy with a reason.
	formBytesMax = 64 << 10
)

// Config is what pages are made from.
type Config struct {
	See    *observe.Observer
	Act    *control.Control
	Tokens *api.Tokens // nil: nobody signs in
	// Version of the build, for the foot of the page.
	Version string
}

// Pages serves the page.
type Pages struct {
	Config
	templates map[string]*template.Template // by page
	assets    string                        // version of the static files, in their addresses
}

// New reads the templates, which are part of the binary: one that does not parse ends every test.
func New(c Config) (*Pages, error) {
	p := &Pages{Config: c, templates: map[string]*template.Template{}}
	hash := sha256.New()
	err := fs.WalkDir(staticFiles, "static", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := staticFiles.ReadFile(path)
		hash.Write(body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the page's files: %w", err)
	}
	p.assets = hex.EncodeToString(hash.Sum(nil))[:12]
	for _, name := range []string{"overview", "tables", "table", "turns", "executors", "masters", "failures", "problem", "sign-in", "dialog", "explain", "policy", "default"} {
		t, err := template.New(name).Funcs(funcs).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", "templates/"+name+".html")
		if err != nil {
			return nil, fmt.Errorf("reading the page's templates: %w", err)
		}
		p.templates[name] = t
	}
	return p, nil
}

// Handler serves every path of the page; it is mounted at /.
func (p *Pages) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /static/", p.static)
	mux.HandleFunc("GET /{$}", p.page("overview", p.overview))
	mux.HandleFunc("GET /tables", p.page("tables", p.tables))
	mux.HandleFunc("GET /tables/{table}", p.page("table", p.table))
	mux.HandleFunc("GET /tables/{table}/explain", p.fragment("explain", p.explain))
	mux.HandleFunc("GET /tables/{table}/policy", p.fragment("policy", p.policy))
	mux.HandleFunc("GET /turns", p.page("turns", p.turns))
	mux.HandleFunc("GET /executors", p.page("executors", p.executors))
	mux.HandleFunc("GET /masters", p.page("masters", p.masters))
	mux.HandleFunc("GET /failures", p.page("failures", p.failures))
	mux.HandleFunc("GET /policy", p.page("default", p.defaultPolicy))
	mux.HandleFunc("GET /policy/values", p.fragment("policy", p.defaultValues))
	mux.HandleFunc("GET /ask/{action}", p.ask)
	mux.HandleFunc("POST /act/{action}", p.do)
	mux.HandleFunc("GET /sign-in", p.signIn)
	mux.HandleFunc("POST /sign-in", p.signedIn)
	mux.HandleFunc("POST /sign-out", p.signOut)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		p.render(w, r, http.StatusNotFound, "problem", notFound(r.URL.Path))
	})
	return mux
}

func notFound(path string) api.Problem {
	return api.Problem{Title: "Not found", Status: http.StatusNotFound, Code: "no_such_path", Detail: "There is no page at " + path + "."}
}

// view is what every template gets.
type view struct {
	Page     string
	Title    string
	Self     string // the address of what is shown
	NowMS    int64
	Fresh    bool
	Cluster  string
	Root     string
	Attend   int // failures that need attention
	Running  int // executions
	Identity api.Identity
	CanAct   bool
	SignedIn bool
	Version  string
	Assets   string
	Data     any
}

// page answers with a page, or with its live part alone if the script asks.
func (p *Pages) page(name string, read func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), renderTimeout)
		defer cancel()
		data, err := read(ctx, r)
		if err != nil {
			problem := api.ProblemOf(err)
			p.render(w, r, problem.Status, "problem", problem)
			return
		}
		p.render(w, r, http.StatusOK, name, data)
	}
}

// fragment answers with a part of a page that has no place of its own.
func (p *Pages) fragment(name string, read func(context.Context, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), renderTimeout)
		defer cancel()
		data, err := read(ctx, r)
		if err != nil {
			p.write(w, http.StatusOK, name, "problem", p.view(r, name, api.ProblemOf(err)))
			return
		}
		p.write(w, http.StatusOK, name, "fragment", p.view(r, name, data))
	}
}

// render writes a page. The script shows whatever it is sent in place of the live part, so that gets a status of success.
func (p *Pages) render(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	part := "layout"
	if scripted(r) {
		part, status = "live-with-counts", http.StatusOK
	}
	p.write(w, status, name, part, p.view(r, name, data))
}

// scripted says that the page's script asks for a part of a page. What it asks for to go back in history is a whole one.
func scripted(r *http.Request) bool {
	return r.Header.Get("HX-Request") == "true" && r.Header.Get("HX-History-Restore-Request") != "true"
}

func (p *Pages) view(r *http.Request, name string, data any) view {
	o := p.See.Overview()
	id := api.IdentityOf(r.Context())
	v := view{
		Page: name, Title: titles[name], Self: r.URL.RequestURI(), NowMS: o.NowMS, Fresh: o.Fresh, Cluster: o.Cluster.Name, Root: o.Cluster.Root,
		Attend: o.Attention, Running: o.Executions, Identity: id, CanAct: id.Role == api.Operator, SignedIn: p.Tokens != nil,
		Version: p.Version, Assets: p.assets, Data: data,
	}
	if t, ok := data.(interface{ title() string }); ok {
		v.Title = t.title()
	}
	return v
}

var titles = map[string]string{
	"overview": "Overview", "tables": "Tables", "turns": "Turns", "executors": "Executors", "masters": "Masters", "failures": "Failures",
	"default": "Default policy", "problem": "Problem", "sign-in": "Sign in",
}

// write renders into memory first, so that an error never leaves half a page.
func (p *Pages) write(w http.ResponseWriter, status int, name, part string, v view) {
	var body bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&body, part, v); err != nil {
		http.Error(w, "the page cannot be rendered: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "HX-Request")
	w.WriteHeader(status)
	_, _ = body.WriteTo(w)
}

// static serves a file of the binary. Its address carries the version of all of them, so it may be kept for ever.
func (p *Pages) static(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("v") == p.assets {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if strings.HasSuffix(r.URL.Path, "/") {
		http.NotFound(w, r) // no listings
		return
	}
	http.FileServerFS(staticFiles).ServeHTTP(w, r)
}

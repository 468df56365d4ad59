package apiclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// master is a server that answers like one which asks for a token, or for none.
func master(t *testing.T, token string, serve http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"status":401,"code":"token_needed","detail":"give a token"}`)
			return
		}
		if r.Method != http.MethodHead {
			serve(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func gone(t *testing.T) string {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s.URL
}

func TestTheFirstMasterThatAnswersUsIsAsked(t *testing.T) {
	locked := master(t, "another token", nil)
	open := master(t, "", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"path":%q,"by":%q}`, r.URL.Path, r.Header.Get("From"))
	})
	dead := gone(t)
	c, err := Find(t.Context(), Options{Masters: []string{dead, locked.URL, open.URL + "/"}, By: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Path, By string }
	if err := c.Get(t.Context(), "/overview", &got); err != nil || got.Path != "/api/v1/overview" || got.By != "alice" || c.Master() != open.URL {
		t.Errorf("%+v, %v, %s", got, err, c.Master())
	}
	_, err = Find(t.Context(), Options{Masters: []string{dead, locked.URL}})
	if !errors.Is(err, ErrNoMaster) || !strings.Contains(err.Error(), dead) || !strings.Contains(err.Error(), "--token-file") {
		t.Errorf("who was asked, and what to do, is not said: %v", err)
	}
	if _, err := Find(t.Context(), Options{Masters: []string{locked.URL}, Token: "mine"}); !errors.Is(err, ErrNoMaster) || !strings.Contains(err.Error(), "does not know the token") {
		t.Errorf("%v", err)
	}
	if _, err := Find(t.Context(), Options{}); !errors.Is(err, ErrNoMaster) {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"10.0.0.1:7078", "ftp://x", "http://"} {
		if _, err := Find(t.Context(), Options{Masters: []string{bad}}); err == nil || errors.Is(err, ErrNoMaster) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestATokenDoesNotFollowARedirect(t *testing.T) {
	elsewhere := master(t, "", func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s was asked with %q", r.URL, r.Header.Get("Authorization"))
	})
	leads := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer leads.Close()
	if _, err := Find(t.Context(), Options{Masters: []string{leads.URL}, Token: "secret"}); !errors.Is(err, ErrNoMaster) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func TestAProblemKeepsItsCodeAndSaysWhatToDo(t *testing.T) {
	s := master(t, "t", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/refused":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"status":403,"code":"operator_needed","detail":"bob is a viewer"}`)
		case "/api/v1/proxy":
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>")
		default:
			fmt.Fprint(w, "<html>")
		}
	})
	c, err := Find(t.Context(), Options{Masters: []string{s.URL}, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var into any
	err = c.Post(t.Context(), "/refused", map[string]any{}, &into)
	if p := (*Problem)(nil); !errors.As(err, &p) || p.Code() != "operator_needed" || !strings.Contains(err.Error(), s.URL) || !strings.Contains(err.Error(), "bob is a viewer") {
		t.Errorf("%v", err)
	}
	for _, path := range []string{"/proxy", "/page"} {
		if err := c.Get(t.Context(), path, &into); err == nil || !strings.Contains(err.Error(), s.URL) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAllReadsEveryPageAlsoOfAnAPIInThisProcess(t *testing.T) {
	serve := func(w http.ResponseWriter, r *http.Request) {
		from := 0
		if c := r.URL.Query().Get("cursor"); c != "" {
			_, _ = fmt.Sscan(c, &from)
		}
		page := map[string]any{"items": []int{from, from + 1}}
		if from < 6 {
			page["next"] = fmt.Sprint(from + 2)
		}
		if r.URL.Query().Get("sort") != "age" || r.URL.Query().Get("limit") != fmt.Sprint(PageMax) {
			w.WriteHeader(http.StatusBadRequest)
		}
		_ = json.NewEncoder(w).Encode(page)
	}
	remote, err := Find(t.Context(), Options{Masters: []string{master(t, "", serve).URL}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*Client{"a master": remote, "this process": Local(http.HandlerFunc(serve))} {
		got, err := All[int](t.Context(), c, "/tables", url.Values{"sort": {"age"}})
		if err != nil || !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if _, err := All[int](t.Context(), c, "/tables", nil); err == nil {
			t.Errorf("%s: a refusal is taken for a list", name)
		}
	}
}

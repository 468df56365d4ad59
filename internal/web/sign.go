package web

import (
	"net/http"
	"net/url"
	"strings"

	"tidemark/internal/api"
)

// signing is what the page to sign in shows.
type signing struct {
	Next    string
	Problem string
}

// local keeps a redirection on this server. Browsers read a backslash as a slash and leave out tabs, so neither may be in it.
func local(path string) string {
	u, err := url.Parse(path) // which refuses control characters
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.Contains(path, "\\") {
		return "/"
	}
	return path
}

func (p *Pages) signIn(w http.ResponseWriter, r *http.Request) {
	p.write(w, http.StatusOK, "sign-in", "sign-in", p.view(r, "sign-in", signing{Next: local(r.URL.Query().Get("next"))}))
}

// signedIn keeps the token in a cookie that no script and no other site can use.
func (p *Pages) signedIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, formBytesMax)
	token := strings.TrimSpace(r.PostFormValue("token"))
	next := local(r.PostFormValue("next"))
	if p.Tokens == nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	if _, ok := p.Tokens.Identify(token); !ok {
		v := p.view(r, "sign-in", signing{Next: next, Problem: "That is none of this server's tokens."})
		p.write(w, http.StatusUnauthorized, "sign-in", "sign-in", v)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: api.TokenCookie, Value: token, Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (p *Pages) signOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: api.TokenCookie, Path: "/", MaxAge: -1, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}

package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// TokenCookie holds the token of a person who signed in on the page.
const TokenCookie = "tidemark_token"

// openPaths need no token: probes of orchestrators, and what a browser needs to sign in.
var openPaths = []string{"/healthz", "/readyz", "/sign-in", "/static/"}

type identityKey struct{}

// IdentityOf is who makes a request. Where no tokens are asked for everybody is an operator without a name.
func IdentityOf(ctx context.Context) Identity {
	if id, ok := ctx.Value(identityKey{}).(Identity); ok {
		return id
	}
	return Identity{Role: Operator}
}

// As is a handler whose requests are all an operator's of that name.
func As(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, Identity{Name: name, Role: Operator})))
	})
}

// Loopback says whether an address to listen on is of this machine alone.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && loopbackHost(host)
}

func loopbackHost(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// guarded lets through what may be done:
//
//  1. A change that another site's page sends is refused, whoever it comes from.
//  2. Without tokens on loopback, a request for a host of another name is refused: a page that gave this machine's address
//     to a name of its own would else be of the same site.
//  3. With tokens, a request needs one; one that changes something needs an operator's.
func guarded(next http.Handler, tokens *Tokens, loopbackOnly bool) http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problem(http.StatusForbidden, "cross_origin", "the request was sent by a page of another site").write(w)
	}))
	return headed(origins.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case tokens != nil:
			r = identified(w, r, tokens)
		case loopbackOnly && !loopbackHost(hostOf(r)):
			problem(http.StatusForbidden, "host_refused", "without tokens this server answers to localhost and loopback addresses only").write(w)
			return
		}
		if r != nil && tokens == nil {
			r = r.WithContext(context.WithValue(r.Context(), identityKey{}, Identity{Name: fromOf(r), Role: Operator}))
		}
		if r != nil {
			next.ServeHTTP(w, r)
		}
	})))
}

// headed puts the headers on every answer that keep browsers from guessing and from being framed.
func headed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
			"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

// fromOf is whom the request says it is from, if that is a name.
func fromOf(r *http.Request) string {
	name := r.Header.Get("From")
	if len(name) > namesBytesMax || strings.ContainsFunc(name, unprintable) {
		return ""
	}
	return name
}

func hostOf(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		return host
	}
	return r.Host
}

// identified returns the request with its identity, or nil once it has been answered.
func identified(w http.ResponseWriter, r *http.Request, tokens *Tokens) *http.Request {
	for _, path := range openPaths {
		if r.URL.Path == path || strings.HasSuffix(path, "/") && strings.HasPrefix(r.URL.Path, path) {
			return r
		}
	}
	token, sent := tokenOf(r)
	id, known := tokens.Identify(token)
	changes := r.Method != http.MethodGet && r.Method != http.MethodHead
	switch {
	case !known && !changes && strings.Contains(r.Header.Get("Accept"), "text/html"):
		http.Redirect(w, r, "/sign-in?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		return nil
	case !known:
		w.Header().Set("WWW-Authenticate", `Bearer realm="tidemark"`)
		detail := "give a token: Authorization: Bearer TOKEN"
		if sent {
			detail = "the token is not one of this server's"
		}
		problem(http.StatusUnauthorized, "token_needed", detail).write(w)
		return nil
	case changes && id.Role != Operator && r.URL.Path != "/sign-out":
		problem(http.StatusForbidden, "operator_needed", fmt.Sprintf("%s is a %s; this needs an %s", id.Name, id.Role, Operator)).write(w)
		return nil
	}
	return r.WithContext(context.WithValue(r.Context(), identityKey{}, id))
}

func tokenOf(r *http.Request) (token string, sent bool) {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(token), true
	}
	if cookie, err := r.Cookie(TokenCookie); err == nil {
		return cookie.Value, true
	}
	return "", false
}

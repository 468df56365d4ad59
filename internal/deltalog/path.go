package deltalog

import (
	"fmt"
	"strings"
)

// The log holds paths as URIs (RFC 2396); everything else here holds what they decode to: a key relative to the
// table. An absolute path (another bucket, a shallow clone) is kept as it stands.

const upperHex = "0123456789ABCDEF"

// encodePath writes a relative path as a URI: everything but letters, digits, a few marks that every engine leaves
// alone and the slash is percent-encoded. A colon is encoded too, lest the first segment read as a scheme.
func encodePath(path string) string {
	if absolutePath(path) {
		return path
	}
	plain := true
	for i := 0; i < len(path) && plain; i++ {
		plain = plainInPath(path[i])
	}
	if plain {
		return path
	}
	var b strings.Builder
	b.Grow(len(path) + 16)
	for i := 0; i < len(path); i++ {
		if c := path[i]; plainInPath(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

func plainInPath(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("/-_.~=+,@&$!*'()", c) >= 0
}

// decodePath reads a path of the log. A path that leaves the table by ".." is refused.
func decodePath(uri string) (string, error) {
	if uri == "" {
		return "", fmt.Errorf("empty path")
	}
	if absolutePath(uri) {
		return uri, nil
	}
	path := uri
	if strings.IndexByte(uri, '%') >= 0 {
		var b strings.Builder
		b.Grow(len(uri))
		for i := 0; i < len(uri); i++ {
			if uri[i] != '%' {
				b.WriteByte(uri[i])
				continue
			}
			if i+2 >= len(uri) || unhex(uri[i+1]) < 0 || unhex(uri[i+2]) < 0 {
				return "", fmt.Errorf("path %q has a percent sign that no two hexadecimal digits follow", uri)
			}
			b.WriteByte(byte(unhex(uri[i+1])<<4 | unhex(uri[i+2])))
			i += 2
		}
		path = b.String()
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == ".." {
			return "", fmt.Errorf("path %q leaves the table", uri)
		}
	}
	return path, nil
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// absolutePath reports whether a path begins with a slash or a URI scheme.
func absolutePath(path string) bool {
	if strings.HasPrefix(path, "/") {
		return true
	}
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			// A scheme needs its slash here, so that a plain name with a colon in it is not taken for one.
			return i > 0 && strings.HasPrefix(path[i:], ":/")
		}
	}
	return false
}

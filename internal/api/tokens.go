package api

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
)

// Role is what the bearer of a token may do.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // see everything
	Operator Role = "operator" // and act
)

// tokenBytesMin is the least length of a token: 16 characters of hexadecimal are 64 bits.
const tokenBytesMin = 16

// tokensFileMax bounds the file: thousands of tokens.
const tokensFileMax = 1 << 20

// Identity is who makes a request.
type Identity struct {
	Name string
	Role Role
}

// Tokens are the bearer tokens that are accepted. Only hashes are kept, so that no dump of memory, log or mistake shows one.
// They are read again when their file changes: a line that is taken out ends a token with the next request.
type Tokens struct {
	byHash *reloaded[hashes]
}

type hashes map[[sha256.Size]byte]Identity

// ReadTokens reads a file of lines "NAME ROLE TOKEN". Empty lines and lines that begin with # say nothing. Its errors name
// lines, never a token.
func ReadTokens(path string) (*Tokens, error) {
	r, err := load(func() (hashes, error) { return readHashes(path) }, path)
	if err != nil {
		return nil, err
	}
	return &Tokens{byHash: r}, nil
}

func readHashes(path string) (hashes, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > tokensFileMax {
		return nil, fmt.Errorf("tokens file %s has %d bytes, more than %d", path, info.Size(), tokensFileMax)
	}
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the tokens: %w", err)
	}
	byHash, err := parseTokens(body)
	if err != nil {
		return nil, fmt.Errorf("tokens file %s: %w", path, err)
	}
	return byHash, nil
}

func parseTokens(body []byte) (hashes, error) {
	byHash := hashes{}
	lines := bufio.NewScanner(bytes.NewReader(body))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d has %d words; want a name, a role and a token", n, len(fields))
		}
		role := Role(fields[1])
		if role != Viewer && role != Operator {
			return nil, fmt.Errorf("line %d: the second word is the role, %s or %s", n, Viewer, Operator)
		}
		if len(fields[2]) < tokenBytesMin {
			return nil, fmt.Errorf("line %d: the token is shorter than %d characters; make one with `openssl rand -hex 32`", n, tokenBytesMin)
		}
		hash := sha256.Sum256([]byte(fields[2]))
		if _, twice := byHash[hash]; twice {
			return nil, fmt.Errorf("line %d: another line has the same token", n)
		}
		byHash[hash] = Identity{Name: fields[0], Role: role}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("a line is too long: %w", err)
	}
	if len(byHash) == 0 {
		return nil, fmt.Errorf("there is no token in it")
	}
	return byHash, nil
}

// Identify says whose a token is. The comparison is of hashes, so its time tells nothing of use.
func (t *Tokens) Identify(token string) (Identity, bool) {
	byHash, _ := t.byHash.get() // stale says that it could not be read
	id, ok := byHash[sha256.Sum256([]byte(token))]
	return id, ok
}

// stale is why the file's newest contents are not in force; nil if they are.
func (t *Tokens) stale() error {
	_, err := t.byHash.get()
	return err
}

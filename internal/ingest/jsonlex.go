package ingest

import (
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonDepthMax bounds the recursion that outside bytes can cause.
const jsonDepthMax = 64

// jsonRows cuts a JSON input into the bytes of its rows: the objects of one array, or objects one after the other with
// nothing but white space between them (JSON lines, however the lines are broken).
type jsonRows struct {
	w     *window
	next  int // bytes of the row returned last, dropped by the next call
	row   int64
	array bool
	ended bool
}

// read returns the bytes of the next row, valid until the next call, and the line it starts on; no bytes at the end.
func (r *jsonRows) read() (row []byte, line int64, err error) {
	r.w.drop(r.next)
	r.next = 0
	c, err := r.space()
	if err != nil {
		return nil, r.w.line(0), err
	}
	if r.row == 0 && !r.array && c == '[' {
		r.array = true
		r.w.drop(1)
		if c, err = r.space(); err != nil {
			return nil, r.w.line(0), err
		}
		if c == ']' {
			return r.end()
		}
	} else if r.array && !r.ended {
		switch c {
		case ']':
			return r.end()
		case ',':
			r.w.drop(1)
			if c, err = r.space(); err != nil {
				return nil, r.w.line(0), err
			}
		case 0:
			return nil, r.w.line(0), errors.New("the array is never closed; is the file complete?")
		default:
			return nil, r.w.line(0), fmt.Errorf("expected a comma or ] after a row, found %q", c)
		}
	}
	line = r.w.line(0)
	switch {
	case c == 0 && !r.array:
		return nil, line, nil
	case r.ended && c == 0:
		return nil, line, nil
	case r.ended:
		return nil, line, errors.New("text after the closing ] of the array")
	case c != '{':
		return nil, line, fmt.Errorf("a row must be an object, found %q", c)
	}
	r.row++
	n, err := r.extent()
	if err != nil {
		return nil, line, err
	}
	r.next = n
	return r.w.buf[:n], line, nil
}

func (r *jsonRows) end() ([]byte, int64, error) {
	r.ended = true
	r.w.drop(1)
	return r.read()
}

// space drops white space and returns the character after it, 0 at the end of the input.
func (r *jsonRows) space() (byte, error) {
	for {
		for i, c := range r.w.buf {
			if !isSpace(c) {
				r.w.drop(i)
				if c == 0 {
					return 0, errors.New("a zero byte; is this a text file?")
				}
				return c, nil
			}
		}
		r.w.drop(len(r.w.buf))
		if ok, err := r.w.more(); !ok {
			return 0, err
		}
	}
}

// extent finds the end of the object at the start of the window by counting brackets outside strings.
func (r *jsonRows) extent() (int, error) {
	depth, quoted := 0, false
	for i := 0; ; i++ {
		for i >= len(r.w.buf) {
			ok, err := r.w.more()
			if err != nil {
				return 0, err
			}
			if !ok {
				return 0, errors.New("the row is never closed; is the file complete?")
			}
		}
		switch c := r.w.buf[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// jsonText reads one JSON value, strictly as RFC 8259 defines it.
type jsonText struct {
	s     []byte
	i     int
	plain []byte // the last string that held escapes
}

// peek skips white space and returns the next character, 0 at the end.
func (t *jsonText) peek() byte {
	for t.i < len(t.s) && isSpace(t.s[t.i]) {
		t.i++
	}
	if t.i == len(t.s) {
		return 0
	}
	return t.s[t.i]
}

func (t *jsonText) expect(c byte) error {
	if got := t.peek(); got != c {
		if got == 0 {
			return fmt.Errorf("expected %q, found the end", c)
		}
		return fmt.Errorf("expected %q, found %q", c, got)
	}
	t.i++
	return nil
}

// literal reads true, false or null.
func (t *jsonText) literal() ([]byte, error) {
	start := t.i
	for t.i < len(t.s) && t.s[t.i] >= 'a' && t.s[t.i] <= 'z' {
		t.i++
	}
	switch text := t.s[start:t.i]; string(text) {
	case "true", "false", "null":
		return text, nil
	default:
		return nil, fmt.Errorf("%s is not a JSON value", quote(t.s[start:min(len(t.s), max(t.i, start+1))]))
	}
}

// number returns the exact source text of a number.
func (t *jsonText) number() ([]byte, error) {
	start := t.i
	for t.i < len(t.s) {
		c := t.s[t.i]
		if c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E' {
			t.i++
			continue
		}
		break
	}
	text := t.s[start:t.i]
	if _, ok := scanNumber(text); !ok {
		return nil, fmt.Errorf("%s is not a JSON value", quote(t.s[start:min(len(t.s), max(t.i, start+1))]))
	}
	return text, nil
}

// str reads a string and returns what it means, valid until the next call.
func (t *jsonText) str() ([]byte, error) {
	if err := t.expect('"'); err != nil {
		return nil, err
	}
	start := t.i
	for t.i < len(t.s) {
		switch c := t.s[t.i]; {
		case c == '"':
			text := t.s[start:t.i]
			t.i++
			return validUTF8(text)
		case c == '\\':
			t.plain = append(t.plain[:0], t.s[start:t.i]...)
			return t.escaped()
		case c < 0x20:
			return nil, errControl
		}
		t.i++
	}
	return nil, errStringEnd
}

// escaped goes on with a string from its first backslash.
func (t *jsonText) escaped() ([]byte, error) {
	for t.i < len(t.s) {
		c := t.s[t.i]
		t.i++
		switch {
		case c == '"':
			return validUTF8(t.plain)
		case c < 0x20:
			return nil, errControl
		case c != '\\':
			t.plain = append(t.plain, c)
			continue
		case t.i == len(t.s):
			return nil, errStringEnd
		}
		c = t.s[t.i]
		t.i++
		switch c {
		case '"', '\\', '/':
			t.plain = append(t.plain, c)
		case 'b':
			t.plain = append(t.plain, '\b')
		case 'f':
			t.plain = append(t.plain, '\f')
		case 'n':
			t.plain = append(t.plain, '\n')
		case 'r':
			t.plain = append(t.plain, '\r')
		case 't':
			t.plain = append(t.plain, '\t')
		case 'u':
			r, err := t.unicode()
			if err != nil {
				return nil, err
			}
			t.plain = utf8.AppendRune(t.plain, r)
		default:
			return nil, fmt.Errorf("\\%c is not a JSON escape", c)
		}
	}
	return nil, errStringEnd
}

// unicode reads what follows \u: four hexadecimal digits, or a pair of surrogates.
func (t *jsonText) unicode() (rune, error) {
	first, ok := t.hex()
	if !ok {
		return 0, errors.New(`\u needs four hexadecimal digits`)
	}
	if !utf16.IsSurrogate(first) {
		return first, nil
	}
	if t.i+1 < len(t.s) && t.s[t.i] == '\\' && t.s[t.i+1] == 'u' {
		t.i += 2
		if second, ok := t.hex(); ok {
			if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
				return r, nil
			}
		}
	}
	return 0, errors.New(`\u names half of a surrogate pair, which is no character`)
}

func (t *jsonText) hex() (rune, bool) {
	if t.i+4 > len(t.s) {
		return 0, false
	}
	var r rune
	for _, c := range t.s[t.i : t.i+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	t.i += 4
	return r, true
}

// skip reads one value of any kind and returns its source text.
func (t *jsonText) skip(depth int) ([]byte, error) {
	c := t.peek()
	start := t.i
	var err error
	switch c {
	case '{':
		err = t.object(depth, func([]byte) error { _, err := t.skip(depth + 1); return err })
	case '[':
		err = t.list(depth, func() error { _, err := t.skip(depth + 1); return err })
	case '"':
		_, err = t.str()
	default:
		_, err = t.scalar(c)
	}
	if err != nil {
		return nil, err
	}
	return t.s[start:t.i], nil
}

// scalar reads a number or a literal that begins with c.
func (t *jsonText) scalar(c byte) ([]byte, error) {
	if c == '-' || c >= '0' && c <= '9' {
		return t.number()
	}
	return t.literal()
}

// object reads an object; value is called behind the colon of each member and must read its value.
func (t *jsonText) object(depth int, value func(key []byte) error) error {
	return t.members('{', '}', depth, func() error {
		key, err := t.str()
		if err != nil {
			return err
		}
		if err := t.expect(':'); err != nil {
			return err
		}
		return value(key)
	})
}

// list reads an array; value must read one element.
func (t *jsonText) list(depth int, value func() error) error {
	return t.members('[', ']', depth, value)
}

func (t *jsonText) members(open, end byte, depth int, member func() error) error {
	if depth >= jsonDepthMax {
		return fmt.Errorf("values are nested more than %d deep", jsonDepthMax)
	}
	if err := t.expect(open); err != nil {
		return err
	}
	if t.peek() == end {
		t.i++
		return nil
	}
	for {
		if err := member(); err != nil {
			return err
		}
		if t.peek() == end {
			t.i++
			return nil
		}
		if err := t.expect(','); err != nil {
			return err
		}
	}
}

func validUTF8(text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%s is not UTF-8; convert the file first, for example with iconv", quote(text))
	}
	return text, nil
}

var (
	errControl   = errors.New("a string holds a bare control character; JSON wants it escaped")
	errStringEnd = errors.New("a string never ends")
)

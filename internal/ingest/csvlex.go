package ingest

import (
	"bytes"
	"errors"
)

// csvLexer splits CSV (RFC 4180) into records. It differs from encoding/csv where that would change or hide data: it
// says which fields were quoted, so that "" is told from nothing; it keeps line breaks inside quotes as they are; and it
// leaves blank lines to its caller.
//
//   - A record ends at LF or CRLF, or with the input. Fields are separated by commas.
//   - A field that begins with a quote ends at the next single quote character; a doubled one stands for itself.
//   - A quote inside an unquoted field, text after a closing quote and a quote that never closes are errors.
type csvLexer struct {
	w      *window
	next   int // bytes of the record returned last, dropped by the next call
	ends   []csvSpan
	fields []csvField
	plain  []byte // fields without their doubled quotes
}

// csvField is valid until the next call of read.
type csvField struct {
	text   []byte
	quoted bool
}

// csvSpan is a field's place in the window while the record is still growing.
type csvSpan struct {
	from, to int
	quoted   bool
	doubled  bool // holds doubled quotes
}

var (
	errBareQuote    = errors.New(`a quote inside an unquoted field; quote the whole field and double the quotes in it`)
	errAfterQuote   = errors.New(`text after a closing quote; quotes inside a quoted field must be doubled`)
	errUnterminated = errors.New(`a quoted field never ends`)
)

// read returns the next record and its first line. At the end of the input it returns no fields. A blank line is one
// empty unquoted field. After an error, line is where it was found.
func (l *csvLexer) read() (fields []csvField, line int64, err error) {
	l.w.drop(l.next)
	l.next = 0
	line = l.w.lines + 1
	if len(l.w.buf) == 0 {
		if ok, err := l.w.more(); !ok {
			return nil, line, err
		}
	}
	l.ends = l.ends[:0]
	at := 0
	for {
		span, end, last, err := l.field(at)
		if err != nil {
			return nil, l.w.line(span.from), err
		}
		l.ends = append(l.ends, span)
		at = end
		if last {
			break
		}
	}
	l.next = at
	l.fields, l.plain = l.fields[:0], l.plain[:0]
	for _, span := range l.ends {
		text := l.w.buf[span.from:span.to]
		if span.doubled {
			start := len(l.plain)
			l.plain = undouble(l.plain, text)
			text = l.plain[start:]
		}
		l.fields = append(l.fields, csvField{text: text, quoted: span.quoted})
	}
	return l.fields, line, nil
}

// field reads one field that starts at at. end is where the next one starts; last says that the record ends here.
func (l *csvLexer) field(at int) (span csvSpan, end int, last bool, err error) {
	if ok, err := l.fill(at); err != nil {
		return csvSpan{from: at}, 0, false, err
	} else if ok && l.w.buf[at] == '"' {
		return l.quoted(at)
	}
	i := at
	for {
		for i < len(l.w.buf) && l.w.buf[i] != ',' && l.w.buf[i] != '\n' && l.w.buf[i] != '"' {
			i++
		}
		if i < len(l.w.buf) {
			break
		}
		ok, err := l.w.more()
		if err != nil {
			return csvSpan{from: at}, 0, false, err
		}
		if !ok {
			return csvSpan{from: at, to: i}, i, true, nil
		}
	}
	switch l.w.buf[i] {
	case '"':
		return csvSpan{from: i}, 0, false, errBareQuote
	case ',':
		return csvSpan{from: at, to: i}, i + 1, false, nil
	}
	to := i
	if to > at && l.w.buf[to-1] == '\r' {
		to--
	}
	return csvSpan{from: at, to: to}, i + 1, true, nil
}

func (l *csvLexer) quoted(at int) (span csvSpan, end int, last bool, err error) {
	span = csvSpan{from: at + 1, quoted: true}
	i := at + 1
	for {
		ok, err := l.fill(i)
		if err != nil {
			return csvSpan{from: at}, 0, false, err
		}
		if !ok {
			return csvSpan{from: at}, 0, false, errUnterminated
		}
		stop := bytes.IndexByte(l.w.buf[i:], '"')
		if stop < 0 {
			i = len(l.w.buf)
			continue
		}
		i += stop
		if ok, err = l.fill(i + 1); err != nil {
			return csvSpan{from: at}, 0, false, err
		}
		if ok && l.w.buf[i+1] == '"' {
			span.doubled = true
			i += 2
			continue
		}
		span.to = i
		break
	}
	end, last, err = l.afterQuote(i + 1)
	if err != nil {
		return csvSpan{from: i}, 0, false, err
	}
	return span, end, last, nil
}

// afterQuote expects a separator, a line end or the end of the input.
func (l *csvLexer) afterQuote(i int) (end int, last bool, err error) {
	ok, err := l.fill(i + 1)
	if err != nil {
		return 0, false, err
	}
	if i == len(l.w.buf) {
		return i, true, nil
	}
	switch {
	case l.w.buf[i] == ',':
		return i + 1, false, nil
	case l.w.buf[i] == '\n':
		return i + 1, true, nil
	case ok && l.w.buf[i] == '\r' && l.w.buf[i+1] == '\n':
		return i + 2, true, nil
	}
	return 0, false, errAfterQuote
}

// fill makes buf[i] readable; false means that the input ends before it.
func (l *csvLexer) fill(i int) (bool, error) {
	for i >= len(l.w.buf) {
		if ok, err := l.w.more(); !ok {
			return false, err
		}
	}
	return true, nil
}

// undouble appends text with its doubled quotes halved.
func undouble(dst, text []byte) []byte {
	for i := 0; i < len(text); i++ {
		dst = append(dst, text[i])
		if text[i] == '"' {
			i++
		}
	}
	return dst
}

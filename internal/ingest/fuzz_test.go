package ingest

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// readAll opens text and counts its rows; it returns -1 if the text is refused.
func readAll(t *testing.T, kind format, body []byte) int64 {
	t.Helper()
	src, err := Open(context.Background(), Options{Sanitize: true, TempDir: t.TempDir()}, Stream("fuzz", bytes.NewReader(body)))
	if err != nil {
		return -1
	}
	defer src.Close()
	if src.inputs[0].format != kind {
		return -1
	}
	var rows int64
	for {
		rec, err := src.Next(context.Background())
		if err == io.EOF {
			return rows
		}
		if err != nil {
			return -1
		}
		rows += rec.NumRows()
		rec.Release()
	}
}

// FuzzCSV: no text makes the reader panic, and what it accepts encoding/csv reads as the same fields.
func FuzzCSV(f *testing.F) {
	for _, seed := range []string{"a,b\n1,2\n", "a\n\n\"\"\n", "a,b\r\n\"x\"\"y\",\"p\nq\"\r\n", "a,b\n1,2\"", "\xef\xbb\xbfa,b\n2024-01-01,NaN\n", "a,b\n\"", "a,b\n1\r,\r\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		readAll(t, formatCSV, body)
		lex := csvLexer{w: newWindow(iotestReader{bytes.NewReader(body)})}
		var got [][]string
		for {
			fields, _, err := lex.read()
			if err != nil {
				return
			}
			if len(fields) == 0 {
				break
			}
			record := make([]string, len(fields))
			for i, f := range fields {
				record[i] = strings.ReplaceAll(string(f.text), "\r\n", "\n") // encoding/csv does that
			}
			if len(fields) > 1 || record[0] != "" || fields[0].quoted { // it also skips blank lines
				got = append(got, record)
			}
		}
		oracle := csv.NewReader(bytes.NewReader(body))
		oracle.FieldsPerRecord = -1
		want, err := oracle.ReadAll()
		if bytes.HasSuffix(body, []byte("\r")) {
			return // encoding/csv drops a carriage return at the very end
		}
		if err != nil {
			t.Fatalf("accepted what encoding/csv refuses (%v): %q", err, got)
		}
		if len(got) != len(want) {
			t.Fatalf("got %q, encoding/csv has %q", got, want)
		}
		for i := range want {
			if strings.Join(got[i], "\x00") != strings.Join(want[i], "\x00") {
				t.Fatalf("row %d: got %q, encoding/csv has %q", i, got[i], want[i])
			}
		}
	})
}

// FuzzJSON: no text makes the reader panic, and it accepts only rows that encoding/json accepts too.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`[{"a":1},{"a":"x"}]`, "{\"a\":[1,{\"b\":null}]}\n{}\n", `{"a":"\ud83d\ude00\u0000"}`, `[]`, `{"a":1e400,"b":-0}`, `{"a":{}} {"a":{"b":[[]]}}`, `{"":{"":1}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		rows := readAll(t, formatJSON, body)
		if rows < 0 {
			return
		}
		body = bytes.TrimPrefix(body, byteOrderMark)
		var want int64
		if trimmed := bytes.TrimLeft(body, " \t\r\n"); bytes.HasPrefix(trimmed, []byte("[")) {
			var all []json.RawMessage
			if err := json.Unmarshal(body, &all); err != nil {
				t.Fatalf("accepted what encoding/json refuses: %v", err)
			}
			want = int64(len(all))
		} else {
			for decoder := json.NewDecoder(bytes.NewReader(body)); ; want++ {
				var row json.RawMessage
				if err := decoder.Decode(&row); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("accepted what encoding/json refuses: %v", err)
				}
			}
		}
		if rows != want {
			t.Fatalf("%d rows, encoding/json has %d", rows, want)
		}
	})
}

// FuzzArrow: no bytes make the readers of Arrow IPC panic or overflow, and what they accept can be read cell by cell.
func FuzzArrow(f *testing.F) {
	rec := sample(20)
	defer rec.Release()
	for _, kind := range []format{formatArrowFile, formatArrowStream} {
		f.Add(encode(f, kind, rec))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		src, err := Open(context.Background(), Options{Sanitize: true, TempDir: t.TempDir()}, Stream("fuzz", bytes.NewReader(body)))
		if err != nil {
			return
		}
		defer src.Close()
		if kind := src.inputs[0].format; kind != formatArrowFile && kind != formatArrowStream {
			return
		}
		for {
			rec, err := src.Next(context.Background())
			if err != nil {
				return
			}
			for _, column := range rec.Columns() {
				for i := range column.Len() {
					_ = column.ValueStr(i)
				}
			}
			rec.Release()
		}
	})
}

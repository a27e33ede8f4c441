package benchmark

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// unquote reads what encoding/json reads, and refuses the strings in which that
// puts a replacement for half a surrogate pair.
func FuzzUnquote(f *testing.F) {
	for _, s := range []string{`""`, `"plain"`, `"a\nb\t\"\\\/\b\f\r"`, `"\u00e9\u4e16"`, `"\ud83d\ude00!"`, `"\ud83d x"`, `"\ude00"`, `"\ud83d\ud83d"`, `"\\ud83d"`, `"\ufffd"`, `"\u0000"`, "\"\u65e5\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want string
		if !utf8.Valid(raw) || len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &want) != nil {
			t.Skip("no JSON string in UTF-8")
		}
		raw = bytes.TrimRight(raw, " \t\r\n") // as a json.RawMessage is
		got, ok := unquote(raw)
		stated := strings.Count(string(raw), "\ufffd") + strings.Count(strings.ToLower(string(raw)), `\ufffd`)
		if lone := strings.Count(want, "\ufffd") > stated; ok == lone && !strings.Contains(strings.ToLower(string(raw)), `\\ufffd`) {
			t.Fatalf("%s: got ok %v, want %v", raw, ok, !lone)
		}
		if ok && got != want {
			t.Fatalf("%s: got %q, want %q", raw, got, want)
		}
	})
}

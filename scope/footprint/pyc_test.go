package footprint

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"
)

func TestParseCompiled(t *testing.T) {
	for name, want := range map[string]Compiled{
		"__pycache__/m.cpython-311.pyc":         {Source: "m.py", Tag: "cpython-311"},
		"a/b/__pycache__/m.cpython-39.pyc":      {Source: "a/b/m.py", Tag: "cpython-39"},
		"__pycache__/m.n.cpython-311.opt-2.pyc": {Source: "m.n.py", Tag: "cpython-311", Optimize: 2},
		"__pycache__/m.cpython-311.opt-1.pyc":   {Source: "m.py", Tag: "cpython-311", Optimize: 1},
	} {
		want.Path = name
		if got, ok := ParseCompiled(name); !ok || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, ok, want)
		}
	}
	for _, name := range []string{"m.cpython-311.pyc", "__pycache__/m.pyc", "__pycache__/.cpython-311.pyc", "__pycache__/cpython-311.pyc", "__pycache__/m.pypy310.pyc",
		"__pycache__/m.cpython-311.pyo", "__pycache__/m.cpython-311.opt-3.pyc", "__pycache__/m.cpython-311-pytest-8.pyc", "__pycache__/x/m.cpython-311.pyc",
		"x__pycache__/m.cpython-311.pyc", "__pycache__/opt-1.pyc", "", "__pycache__", "__pycache__/m.cpython-311.pyc/x"} {
		if got, ok := ParseCompiled(name); ok {
			t.Errorf("%q: got %+v, want none", name, got)
		}
	}
	if c, ok := ParseTemporary("__pycache__/m.cpython-311.pyc.1405"); !ok || c.Source != "m.py" {
		t.Errorf("temporary: got %+v, %v", c, ok)
	}
	for _, name := range []string{"__pycache__/m.cpython-311.pyc", "__pycache__/m.cpython-311.pyc.py", "conftest.py.7", "7"} {
		if c, ok := ParseTemporary(name); ok {
			t.Errorf("%q: got %+v, want none", name, c)
		}
	}
	if n, err := (Compiled{Tag: "cpython-312"}).Minor(); n != 12 || err != nil {
		t.Errorf("got %d, %v, want 12", n, err)
	}
	if _, err := (Compiled{Tag: "cpython-27"}).Minor(); err == nil {
		t.Error("Python 2: got no error")
	}
}

func TestCheckHeader(t *testing.T) {
	at := time.Unix(1_700_000_000, 5)
	head := func(flags, written, size uint32) []byte {
		b := append([]byte("\xa7\r\r\n"), make([]byte, 12)...)
		binary.LittleEndian.PutUint32(b[4:], flags)
		binary.LittleEndian.PutUint32(b[8:], written)
		binary.LittleEndian.PutUint32(b[12:], size)
		return b
	}
	if err := CheckHeader(head(0, 1_700_000_000, 9), at, 9); err != nil {
		t.Error(err)
	}
	for want, b := range map[string][]byte{
		"flags 1":           head(1, 1_700_000_000, 9), // unchecked hash: loaded whatever the source says
		"flags 3":           head(3, 1_700_000_000, 9),
		"time of writing":   head(0, 1_700_000_001, 9),
		"source of 8 bytes": head(0, 1_700_000_000, 8),
		"got 15 bytes":      head(0, 1_700_000_000, 9)[:15],
	} {
		if err := CheckHeader(b, at, 9); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func FuzzCompiled(f *testing.F) {
	f.Add("a/__pycache__/m.cpython-311.opt-1.pyc", []byte("0123456789abcdef"))
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		if c, ok := ParseCompiled(name); ok && (c.Path != name || c.Source == "" || c.Tag == "") {
			t.Errorf("%q: got %+v", name, c)
		}
		ParseTemporary(name)
		CheckHeader(b, time.Unix(0, 0), 0)
	})
}

package broker

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseShebang(t *testing.T) {
	long := "#!/" + strings.Repeat("x", 253)
	for _, c := range []struct {
		head, interpreter, arg string
		ok                     bool
	}{
		{"#!/bin/sh\necho", "/bin/sh", "", true},
		{"#! \t/bin/sh \t -e -x \t\n", "/bin/sh", "-e -x", true},
		{"#!/usr/bin/env python3", "/usr/bin/env", "python3", true},
		{"#!\n/bin/sh", "", "", false},
		{"#!   \n", "", "", false},
		{"#!sh\n", "sh", "", true},
		{"#!/bin/sh\x00junk\n", "/bin/sh", "", true},
		{long[:256], "", "", false}, // cut off inside the name
		{"#!/bin/sh " + strings.Repeat("a", 246), "/bin/sh", strings.Repeat("a", 246), true},
	} {
		interpreter, arg, ok := parseShebang([]byte(c.head))
		if interpreter != c.interpreter && c.ok || arg != c.arg && c.ok || ok != c.ok {
			t.Errorf("%.40q: got %q, %q, %v, want %q, %q, %v", c.head, interpreter, arg, ok, c.interpreter, c.arg, c.ok)
		}
	}
}

func TestParseAddress(t *testing.T) {
	family := func(f uint16, rest ...byte) []byte {
		return append(binary.NativeEndian.AppendUint16(nil, f), rest...)
	}
	mapped := append(make([]byte, 10), 0xff, 0xff, 8, 8, 8, 8)
	for _, c := range []struct {
		b    []byte
		want address
	}{
		{nil, address{text: "short"}},
		{family(unix.AF_UNIX), address{text: "unix"}},
		{family(unix.AF_UNIX, []byte("\x00name")...), address{text: `unix @"name"`}},
		{family(unix.AF_UNIX, []byte("/a/b\x00junk")...), address{text: "unix", path: "/a/b"}},
		{family(unix.AF_INET, 0, 80, 127, 0, 0, 1), address{text: "inet 127.0.0.1:80", inet: true, loopback: true}},
		{family(unix.AF_INET, 1, 0, 8, 8, 8, 8), address{text: "inet 8.8.8.8:256", inet: true}},
		{family(unix.AF_INET, 0, 0, 0, 0), address{text: "family 2"}},
		{family(unix.AF_INET6, append([]byte{0, 53, 0, 0, 0, 0}, mapped...)...), address{text: "inet 8.8.8.8:53", inet: true}},
		{family(unix.AF_INET6, append([]byte{0, 53, 0, 0, 0, 0}, append(make([]byte, 15), 1)...)...), address{text: "inet6 [::1]:53", inet: true, loopback: true}},
	} {
		if got := parseAddress(c.b); got != c.want {
			t.Errorf("%x: got %+v, want %+v", c.b, got, c.want)
		}
	}
}

func TestELFInterpreter(t *testing.T) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if name, foreign := elfInterpreter(int(self.Fd()), head(t, self)); foreign {
		t.Errorf("got foreign %q for this program", name)
	}
	sh, err := os.Open("/bin/sh")
	if err != nil {
		t.Skip(err)
	}
	defer sh.Close()
	name, foreign := elfInterpreter(int(sh.Fd()), head(t, sh))
	if foreign || name != "" && !filepath.IsAbs(name) {
		t.Errorf("got %q, %v for /bin/sh", name, foreign)
	}
}

func head(t *testing.T, f *os.File) []byte {
	b := make([]byte, 256)
	n, err := f.ReadAt(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// Files of the program are hostile: no input may make these panic or claim
// memory by a number.
func FuzzExecutable(f *testing.F) {
	f.Add([]byte("#!/bin/sh -x\n"))
	elf := make([]byte, 256)
	copy(elf, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint64(elf[32:], 64)
	binary.LittleEndian.PutUint16(elf[54:], 56)
	binary.LittleEndian.PutUint16(elf[56:], 1)
	binary.LittleEndian.PutUint32(elf[64:], 3)
	binary.LittleEndian.PutUint64(elf[72:], 128)
	binary.LittleEndian.PutUint64(elf[96:], 8)
	copy(elf[128:], "/ld.so\x00\x00")
	f.Add(elf)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := os.Create(filepath.Join(dir, "x"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.Write(b); err != nil {
			t.Fatal(err)
		}
		h := b[:min(len(b), 256)]
		if len(h) >= 2 && string(h[:2]) == "#!" {
			if name, _, ok := parseShebang(h); ok && (name == "" || strings.ContainsAny(name, " \t\n\x00")) {
				t.Errorf("got interpreter %q", name)
			}
		}
		if name, _ := elfInterpreter(int(file.Fd()), h); len(name) >= pathMax || strings.Contains(name, "\x00") {
			t.Errorf("got loader %q", name)
		}
		parseAddress(b)
	})
}

package reward

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
)

func TestNumber(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1", "0": "0", "1.0": "1", "0.50": "0.5", " 0.75\r\n": "0.75", "-0": "0", "-0.0": "0", "-1.5": "-1.5", "1e-05": "0.00001", "2.5E+1": "25",
		"0.3333333333333333": "0.333333333", "0.9999999999": "1", "0.0000000005": "0.000000001", "100000000000000": "100000000000000",
		"": "", "x": "", "+1": "", ".5": "", "1.": "", "01": "", "1 2": "", "0x10": "", "1/3": "", "NaN": "", "Infinity": "", "1e100": "", "1e99": "", "1_0": "",
		"1000000000000000": "", "1\n2": "", "true": "",
	} {
		got, ok := Number(text)
		if want != "" && (got != want || !ok) || want == "" && ok {
			t.Errorf("%q: got %q %v, want %q", text, got, ok, want)
		}
		if ok && !journal.Decimal(got) {
			t.Errorf("%q: %q is no decimal of the journal", text, got)
		}
	}
}

func TestJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"reward": 1}`: "1", `{"reward": 0.5, "passed": 3, "total": 6}`: "0.5", `{"score": 0.25}`: "0.25", `{"score": 1, "why": "all", "ok": true, "log": [1, 2]}`: "1",
		` {"a" : {"reward": 7}, "n": -1.50 } `: "-1.5",
		`{}`:                                   "", `[1]`: "", `1`: "", `{"a": 1, "b": 2}`: "", `{"reward": "1"}`: "", `{"reward": null, "n": 1}`: "", `{"reward": 1, "reward": 0}`: "",
		`{"n": 1, "n": 1}`: "", `{"reward": 1} x`: "", `{"reward": 1}{}`: "", `{"reward": 1`: "", `{"reward": 1e999}`: "", ``: "", `{"a": "1"}`: "", "{\"rew\\u0061rd\": 1, \"reward\": 0}": "",
	} {
		if got, ok := JSON([]byte(text)); got != want || ok != (want != "") {
			t.Errorf("%s: got %q %v, want %q", text, got, ok, want)
		}
	}
}

func FuzzReward(f *testing.F) {
	for _, s := range []string{"1", "0.5", `{"reward": 1}`, `{"a": 1e-3, "b": [{}]}`, "-0.000", `{"reward":1,"reward":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func([]byte) (string, bool){Text, JSON} {
			v, ok := parse(b)
			if !ok {
				continue
			}
			if again, ok := Number(v); !ok || again != v || !journal.Decimal(v) {
				t.Errorf("%q: %q is not its own spelling (%q)", b, v, again)
			}
		}
	})
}

// The naive oracle keeps everything.
func TestOutput(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		var o Output
		var all []byte
		marks := []uint64{}
		written, calls := uint64(0), 0
		for range r.IntN(12) {
			b := bytes.Repeat([]byte([]string{"0.5", "\n", " ", "ab", "\n\n", "1\n"}[r.IntN(6)]), 1+r.IntN(3))
			if r.IntN(40) == 0 {
				b = bytes.Repeat([]byte("xyz "), MaxFile/3)
			}
			written += uint64(len(b))
			if r.IntN(4) == 0 { // the process ends when b is still in the pipe
				o.Mark(written)
				calls++
				marks = append(marks, written)
				if r.IntN(2) == 0 {
					o.Unmark()
					marks = marks[:0]
				}
			}
			o.Write(b)
			all = append(all, b...)
		}
		if len(marks) == 0 {
			o.Mark(written)
			marks = append(marks, written)
		}
		if calls > 1 && len(all) > MaxFile {
			continue // an earlier mark cannot be taken back then
		}
		m := marks[len(marks)-1]
		before := bytes.TrimRight(all[:m], " \n")
		want := string(before[bytes.LastIndexByte(before, '\n')+1:])
		changed := len(bytes.TrimSpace(all[m:])) > 0
		got, c := o.Last()
		if len(want) > MaxFile/2 {
			continue
		}
		if got != want || c != changed {
			t.Fatalf("%d: got %.40q %v, want %.40q %v", i, got, c, want, changed)
		}
	}
}

func TestOutputLongLine(t *testing.T) {
	var o Output
	o.Write([]byte(strings.Repeat("7", 2*MaxFile)))
	if line, _ := o.Last(); line != "" {
		t.Errorf("got %d bytes of a line that was cut", len(line))
	}
}

func TestLook(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	open := func(p string) int {
		fd, err := unix.Open(p, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	da, db := open(a), open(b)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{a, b} {
		ok(os.MkdirAll(filepath.Join(d, "dir", "sub"), 0o755))
		ok(os.WriteFile(filepath.Join(d, "dir", "sub", "f"), []byte("content"), 0o644))
		ok(os.WriteFile(filepath.Join(d, "file"), []byte("content"), 0o644))
		ok(os.Symlink("file", filepath.Join(d, "link")))
		ok(os.Symlink("dir", filepath.Join(d, "way")))
	}
	same := func(name string) bool {
		t.Helper()
		x, err := Look(da, name)
		ok(err)
		y, err := Look(db, name)
		ok(err)
		return x == y
	}
	for _, name := range []string{"file", "dir", "link", "none", "dir/sub/f", "file/none", "dir/none"} {
		if !same(name) {
			t.Errorf("%s: equal trees differ", name)
		}
	}
	if s, err := Look(da, "way/sub/f"); err != nil || !s.Through() {
		t.Errorf("through a link: got %+v %v", s, err)
	}
	if s, err := Look(da, "file/none"); err != nil || s != Absent {
		t.Errorf("below a file: got %+v %v", s, err)
	}
	for i, change := range []struct {
		name string
		do   func() error
	}{
		{"file", func() error { return os.WriteFile(filepath.Join(b, "file"), []byte("contenT"), 0o644) }},
		{"dir", func() error { return os.WriteFile(filepath.Join(b, "dir", "sub", "g"), nil, 0o644) }},
		{"dir/sub/f", func() error { return os.Remove(filepath.Join(b, "dir", "sub", "f")) }},
		{"link", func() error {
			return errors.Join(os.Remove(filepath.Join(b, "link")), os.Symlink("none", filepath.Join(b, "link")))
		}},
		{"none", func() error { return unix.Mkfifo(filepath.Join(b, "none"), 0o600) }},
	} {
		ok(change.do())
		if same(change.name) {
			t.Errorf("change %d of %s is not seen", i, change.name)
		}
	}
	ok(os.MkdirAll(filepath.Join(b, "dir", "__pycache__"), 0o755))
	x, err := Look(db, "dir")
	ok(err)
	ok(os.WriteFile(filepath.Join(b, "dir", "__pycache__", "x.pyc"), []byte("x"), 0o644))
	if y, err := Look(db, "dir"); err != nil || x != y {
		t.Errorf("a cache counts: %v", err)
	}
	// Reading never follows, waits for a FIFO, or takes more than it should.
	ok(os.WriteFile(filepath.Join(a, "big"), make([]byte, MaxFile+1), 0o644))
	for name, want := range map[string]string{"file": "content", "link": "", "big": "", "dir": "", "absent": ""} {
		if got, _, err := Read(da, name); err != nil || string(got) != want || (want == "") != (got == nil) {
			t.Errorf("read %s: got %q %v", name, got, err)
		}
	}
	if got, s, err := Read(db, "none"); err != nil || got != nil || s == Absent {
		t.Errorf("read a FIFO: got %q %+v %v", got, s, err)
	}
	ok(os.Mkdir(filepath.Join(a, "many"), 0o755))
	for i := range maxEntries + 1 {
		ok(os.WriteFile(filepath.Join(a, "many", fmt.Sprint(i)), nil, 0o644))
	}
	if _, err := Look(da, "many"); !errors.Is(err, ErrTooMuch) {
		t.Errorf("too many files: got %v", err)
	}
}

// A lease keeps a file from being opened. That is a state of its own, and no wait
// without end.
func TestLookAtALease(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "reward.txt"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	before, err := Look(fd, "reward.txt")
	if err != nil {
		t.Fatal(err)
	}
	holder, err := unix.Open(filepath.Join(dir, "reward.txt"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGIO)
	defer signal.Reset(unix.SIGIO)
	if _, err := unix.FcntlInt(uintptr(holder), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no leases here: %v", err)
	}
	began := time.Now()
	content, s, err := Read(fd, "reward.txt")
	if err != nil || content != nil || s.kind != held || s == before {
		t.Errorf("got %q %+v %v, want the state of a file that is held", content, s, err)
	}
	if d := time.Since(began); d > time.Minute {
		t.Errorf("took %v", d)
	}
	unix.Close(holder)
	if s, err := Look(fd, "reward.txt"); err != nil || s != before {
		t.Errorf("after the lease: got %+v %v", s, err)
	}
}

package record

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// memory is a Log that keeps what it gets, and fails when told to.
type memory struct {
	rows    []journal.Row
	details []journal.Detail
	err     error
}

func (m *memory) Append(r *journal.Row, d *journal.Detail) error {
	if m.err != nil {
		return m.err
	}
	r.Seq = uint64(len(m.rows)) + 1
	m.rows, m.details = append(m.rows, *r), append(m.details, *d)
	return nil
}

func (m *memory) Flush() error { return m.err }

func recorder(t testing.TB, o Options) (*Recorder, *memory) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if o.Store, err = objects.New(fd); err != nil {
		t.Fatal(err)
	}
	if o.Proc, err = unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(o.Proc) })
	m := new(memory)
	o.Log = m
	return New(o), m
}

func TestHiddenOnlyOutsideRoots(t *testing.T) {
	asked := 0
	r, m := recorder(t, Options{
		Roots:  []scope.Root{{Path: "/", Mode: scope.ReadOne}, {Path: "/work", Mode: scope.WriteTree}},
		Hidden: func(p string) bool { asked++; return p == "/work2/x" || p == "/work/x" },
	})
	for _, c := range []struct {
		path   string
		result unix.Errno
		want   bool
	}{
		{"/work2/x", unix.ENOENT, true}, {"/work2/x", unix.EACCES, false}, {"/work2/x", 0, false},
		{"/work2/y", unix.ENOENT, false}, {"/work/x", unix.ENOENT, false},
	} {
		if _, err := r.Add(&Event{Op: journal.OpOpen, Path: c.path, Result: c.result, Flags: journal.FlagRead}); err != nil {
			t.Fatal(err)
		}
		if got := m.rows[len(m.rows)-1].Flags&journal.FlagHidden != 0; got != c.want {
			t.Errorf("%s, %v: got hidden %v, want %v", c.path, c.result, got, c.want)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want 2: only for absent paths outside the roots", asked)
	}
}

func TestFailureIsFinal(t *testing.T) {
	r, m := recorder(t, Options{})
	full := errors.New("disk full")
	m.err = full
	if _, err := r.Add(&Event{Op: journal.OpLost}); !errors.Is(err, full) {
		t.Errorf("got %v, want the write error", err)
	}
	m.err = nil
	if _, err := r.Add(&Event{Op: journal.OpLost}); !errors.Is(err, full) {
		t.Errorf("got %v after the disk has room again, want the first error", err)
	}
	if len(m.rows) != 0 {
		t.Errorf("got %d rows after a failure", len(m.rows))
	}
}

func TestObjectNumbers(t *testing.T) {
	r, _ := recorder(t, Options{})
	a, b := unix.Stat_t{Dev: 1, Ino: 1}, unix.Stat_t{Dev: 2, Ino: 1}
	first := r.File(&a)
	if r.File(&a) != first || r.File(&b) == first || r.Known(&unix.Stat_t{Dev: 9}) != nil {
		t.Error("an inode is one object, two are two")
	}
	// The inode number is used again for a new file.
	second, made := r.Create(&a)
	if !made {
		t.Error("a new file under a known number was not made")
	}
	if second == first || second.Number == first.Number || !second.Ours() || first.Ours() {
		t.Error("a fresh file has the number of its predecessor")
	}
	r.Alias(second, &b)
	if r.Known(&b) == second {
		t.Error("an alias replaced a file that is in use")
	}
	c := unix.Stat_t{Dev: 3, Ino: 3}
	r.Alias(second, &c)
	if r.Known(&c) != second {
		t.Error("the alias is not known")
	}
}

// Two opens may both find no file and make it together. The second must not take
// the File of the first away: what is written would never be dated.
func TestPendingFileIsNotReplaced(t *testing.T) {
	open := func(t *testing.T) (*os.File, *unix.Stat_t) {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		st := new(unix.Stat_t)
		if err := unix.Fstat(int(f.Fd()), st); err != nil {
			t.Fatal(err)
		}
		return f, st
	}
	dated := func(t *testing.T, r *Recorder, m *memory, f *os.File, number uint32) {
		t.Helper()
		if _, err := f.WriteString("written"); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := r.DateAll(); err != nil {
			t.Fatal(err)
		}
		if len(m.rows) != 1 || m.rows[0].Op != journal.OpWrote || m.rows[0].Object != number || m.rows[0].Size != 7 {
			t.Errorf("got rows %+v, want one that dates object %d", m.rows, number)
		}
	}
	writable := func(t *testing.T, r *Recorder, file *File, f *os.File) {
		t.Helper()
		if err := r.Writable(file, 1, f.Name(), int(f.Fd())); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("second open before the first is done", func(t *testing.T) {
		r, m := recorder(t, Options{})
		f, st := open(t)
		first, made := r.Create(st)
		second, again := r.Create(st)
		if !made || again || second != first {
			t.Errorf("made %v, again %v, same file %v, want the first alone to make it", made, again, second == first)
		}
		writable(t, r, first, f)
		dated(t, r, m, f, first.Number)
	})
	t.Run("pending file that gets the name meanwhile", func(t *testing.T) {
		r, m := recorder(t, Options{})
		f, st := open(t)
		first := r.File(st)
		writable(t, r, first, f)
		if second, made := r.Create(st); made || second != first {
			t.Error("a file that was met before is pending, and was replaced")
		}
		dated(t, r, m, f, first.Number)
	})
	t.Run("number used again", func(t *testing.T) { // positive control
		r, _ := recorder(t, Options{})
		_, st := open(t)
		first, _ := r.Create(st)
		r.Unnamed(first, true)
		if second, made := r.Create(st); !made || second == first {
			t.Error("a new file under the number of one that is gone was not made")
		}
	})
}

func TestExplained(t *testing.T) {
	r, _ := recorder(t, Options{Workspace: "/w"})
	r.Touched("/w/a", "/elsewhere")
	r.Moved("/w/d")
	for p, want := range map[string]bool{"/w/a": true, "/w/a/b": false, "/w/d/x/y": true, "/w/dx": false, "/elsewhere": false, "/w": false} {
		if got := r.Explained(p); got != want {
			t.Errorf("%s: got %v, want %v", p, got, want)
		}
	}
}

func TestInner(t *testing.T) {
	for field, want := range map[string]int{"7": 7, "12\t3": 3, "12\t3\t1": 1, "": 0} {
		if got := Inner(field); got != want {
			t.Errorf("%q: got %d, want %d", field, got, want)
		}
	}
}

// Early dating under a small bound gives the same rows as dating at the end.
func TestMakeRoomAgainstDateAll(t *testing.T) {
	write := func(r *Recorder, m *memory) map[uint32]uint64 {
		dir := t.TempDir()
		for i := range 20 {
			if r.Full() {
				if err := r.MakeRoom(); err != nil {
					t.Fatal(err)
				}
			}
			name := filepath.Join(dir, string(rune('a'+i)))
			if err := os.WriteFile(name, make([]byte, i+1), 0o600); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.Open(name, unix.O_RDONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil {
				t.Fatal(err)
			}
			f, _ := r.Create(&st)
			f.Lock()
			err = r.Writable(f, 1, name, fd)
			f.Unlock()
			unix.Close(fd)
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := r.DateAll(); err != nil {
			t.Fatal(err)
		}
		sizes := map[uint32]uint64{}
		for _, row := range m.rows {
			if row.Op != journal.OpWrote || row.Origin != journal.OriginRun || sizes[row.Object] != 0 {
				t.Errorf("got %+v, want one wrote row a file", row)
			}
			sizes[row.Object] = row.Size
		}
		return sizes
	}
	few, many := write(recorder(t, Options{Handles: 4})), write(recorder(t, Options{Handles: 1000}))
	if len(few) != 20 || len(many) != 20 {
		t.Fatalf("got %d and %d files, want 20", len(few), len(many))
	}
	for n, size := range many {
		if few[n] != size {
			t.Errorf("file %d: got %d bytes dated early, %d at the end", n, few[n], size)
		}
	}
}

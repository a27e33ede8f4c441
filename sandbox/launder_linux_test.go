package sandbox_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
)

// A file with two names gets a new inode number when the overlay copies it up:
// that of a file which the run made and removed. It must not pass for the run's
// own, or what it holds would be the run's work.
func TestRT45_ReusedInodeNumber(t *testing.T) {
	ws := filepath.Join(base(t), "ws")
	write(t, filepath.Join(ws, "one"), secretText)
	if err := os.Link(filepath.Join(ws, "one"), filepath.Join(ws, "two")); err != nil {
		t.Fatal(err)
	}
	r := run(t, shell(ws, `mkdir d; i=0; while [ $i -lt 64 ]; do echo x > d/$i; i=$((i+1)); done; stat -c %i d/*; rm -r d; echo
		chmod 600 two; stat -c %i two; cat two > /dev/null; echo mine > own; cat own > /dev/null; echo y > old; echo z > new; mv new old; cat old > /dev/null`))
	made, copied, _ := strings.Cut(r.stdout, "\n\n")
	if !slices.Contains(strings.Fields(made), strings.TrimSpace(copied)) {
		t.Skipf("the file system did not use an inode number again (%q, copied up %q)", made, copied)
	}
	exposes(t, r, filepath.Join(ws, "two"), false)
	for _, name := range []string{"own", "old"} { // positive controls: files of the run stay so
		opens := r.opens(filepath.Join(ws, name))
		if last := opens[len(opens)-1]; last.Origin != journal.OriginRun {
			t.Errorf("%v: origin %v, want %v", last, last.Origin, journal.OriginRun)
		}
	}
	r.closed(t)
}

// The other end of a host's FIFO is not of the run: its content would be no row's.
func TestRT44d_PipeOfTheHost(t *testing.T) {
	f := newField(t)
	p := filepath.Join(filepath.Dir(f.hidden), "pipe")
	if err := unix.Mkfifo(p, 0o666); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(p, unix.O_RDWR|unix.O_CLOEXEC, 0) // does not wait for a reader
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(secretText)); err != nil {
		t.Fatal(err)
	}
	r := f.observe(t, "", "timeout 20 head -n 1 "+p+"; mkfifo own; (echo through > own) & cat own; echo in | cat /dev/stdin")
	if r.stdout != "through\nin\n" { // the run's own pipes are its own
		t.Errorf("stdout %q, want the run's own pipes alone (stderr %q)", r.stdout, r.stderr)
	}
	r.has(t, "opening the pipe is refused and out of scope", func(e entry) bool {
		return e.Op == journal.OpOpen && e.D.Path == p && e.Result == int32(unix.EACCES) && e.Flags&journal.FlagOutOfScope != 0
	})
	r.closed(t)
}

// What the driver puts into the environment comes in like its command line, in a
// row of its own; what the run sets itself is not stored.
func TestRT44d_Environment(t *testing.T) {
	ws := filepath.Join(base(t), "ws")
	write(t, filepath.Join(ws, "in"), "x")
	c := shell(ws, `echo "$GIVEN"; v="of the"; OWN="$v run" sh -c 'echo "$OWN"'`)
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	c.Env = append(environment(home), "GIVEN="+secretText)
	r := run(t, c)
	if r.stdout != secretText+"\nof the run\n" {
		t.Fatalf("stdout %q, want what both variables say", r.stdout)
	}
	var in []entry
	for _, e := range r.rows {
		if e.Op == journal.OpArgv && e.Dir == journal.DirIn {
			in = append(in, e)
		}
		if strings.Contains(string(e.D.Text), "OWN=of the run") {
			t.Errorf("%v: the value of a variable of the run is stored", e)
		}
	}
	if len(in) != 2 || in[0].Phase != journal.PhaseSetup || in[0].Origin != journal.OriginDriver || !strings.Contains(string(in[0].D.Text), "GIVEN="+secretText) {
		t.Errorf("got %v coming in, want the environment in the setup phase, then the command line", in)
	}
	if len(in) == 2 && strings.Contains(string(in[1].D.Text), secretText) {
		t.Errorf("%v: the command line's row tells the environment too", in[1])
	}
	r.closed(t)
}

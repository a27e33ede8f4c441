package sandbox_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// A new name under another inode number is no link: it is taken back, and the row
// says what the program was told. Nothing is lost of the file.
func TestSandboxLinkToLowerFile(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	write(t, filepath.Join(ws, "in"), "data\n")
	needs(t, "ln")
	r := run(t, shell(ws, `ln in second 2>&1 || echo refused; ls; cat in; stat -c %h in; echo x >> in; cat in; cp in mine; ln mine third; stat -c %h third`))
	r.closed(t)
	row := func(name string) entry {
		return r.has(t, name, func(e entry) bool { return e.Op == journal.OpLink && e.D.Path2 == filepath.Join(ws, name) })
	}
	if e := row("third"); e.Result != 0 { // the control, on each backend
		t.Errorf("%v: a link to a file of the run's own was refused", e)
	}
	if e := row("second"); strings.HasPrefix(r.Backend, sandbox.PlainBackend) {
		if e.Result != 0 {
			t.Errorf("%v: the workspace is a copy, so the link is one", e)
		}
		return
	} else if e.Result == 0 {
		t.Skip("this kernel's overlay keeps the inode number in a hard link to a lower file")
	} else if e.Result != int32(unix.EXDEV) {
		t.Errorf("%v: want EXDEV", e)
	}
	if want := "ln: failed to create hard link 'second' => 'in': Invalid cross-device link\nrefused\nin\ndata\n1\ndata\nx\n2\n"; r.stdout != want {
		t.Errorf("got %q, want %q", r.stdout, want)
	}
}

package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// withBaseline writes the manifest of the workspace into the run folder.
func withBaseline(t *testing.T, c *sandbox.Config) {
	t.Helper()
	m, err := manifest.Build(c.Workspace, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	c.RunDir, c.Start.Baseline = runDir(t), m.Root()
	write(t, filepath.Join(c.RunDir, "baseline"), string(b))
}

func (r *recorded) stored(sum []byte) bool {
	name := hex.EncodeToString(sum)
	_, err := os.Stat(filepath.Join(r.dir, "objects", name[:2], name))
	return err == nil
}

// What the baseline holds is in rows by its digest and is not stored. All else
// is: other content, the streams, and the control file whatever it holds.
func TestSandboxBaselineIsNotStored(t *testing.T) {
	ws := filepath.Join(base(t), "ws")
	big := strings.Repeat("0123456789abcdef", 5<<20/16)
	write(t, filepath.Join(ws, "big"), big)
	write(t, filepath.Join(ws, "small"), "small\n")
	write(t, filepath.Join(ws, "control"), "control text\n")
	script := "cat big >/dev/null; cat small; printf new > new; read x < new; printf x >> big; cp small copy; read x < copy; read x < control"
	for _, given := range []bool{true, false} { // false: the positive control
		c := shell(ws, script)
		c.ControlText = "control text\n"
		if given {
			withBaseline(t, &c)
		}
		r := run(t, c)
		if r.Code != 0 {
			t.Fatalf("the script ended with %d: %s", r.Code, r.stderr)
		}
		seen := map[string]bool{}
		for _, e := range r.rows {
			if e.D.SHA256 == nil || e.Size == 0 {
				continue
			}
			stream := e.Op == journal.OpStdout
			name := filepath.Base(e.D.Path)
			if stream {
				name = "stdout"
			}
			seen[name] = true
			want := !given
			switch {
			case stream, e.D.Path == sandbox.ControlPath, name == "new", !strings.HasPrefix(e.D.Path, ws+"/"), e.Op == journal.OpWrote && name == "big":
				want = true
			case name == "small", name == "copy", name == "control": // the same bytes are stored for a stream, and for the control file
				want = true
			}
			if got := r.stored(e.D.SHA256); got != want {
				t.Errorf("baseline %v: %v: stored %v, want %v", given, e, got, want)
			}
			if name == "big" && e.Op == journal.OpOpen {
				if sum := sha256.Sum256([]byte(big)); e.Size != uint64(len(big)) || !bytes.Equal(e.D.SHA256, sum[:]) {
					t.Errorf("%v: got %d bytes of digest %x, want those of the file", e, e.Size, e.D.SHA256)
				}
			}
		}
		for _, name := range []string{"big", "small", "new", "copy", "control", "control.txt", "stdout"} {
			if !seen[name] {
				t.Errorf("no row with content of %s", name)
			}
		}
		r.closed(t)
	}
}

// A manifest that is not the start row's must not decide what is left out.
func TestSandboxForeignBaseline(t *testing.T) {
	ws := filepath.Join(base(t), "ws")
	write(t, filepath.Join(ws, "in"), "data")
	c := shell(ws, "cat in")
	c.Env = environment(t.TempDir())
	withBaseline(t, &c)
	c.Start.Baseline[0] ^= 1
	var out bytes.Buffer
	c.Stdout = &out
	_, err := sandbox.Run(context.Background(), c)
	var un *sandbox.Unavailable
	if errors.As(err, &un) {
		t.Skipf("%v (%s)", err, un.Hint)
	}
	if err == nil || !strings.Contains(err.Error(), "baseline in the run folder") || out.Len() != 0 {
		t.Errorf("got %v and output %q, want the baseline refused", err, out.String())
	}
}

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
)

// recorded is a run and what its journal says.
type recorded struct {
	*Result
	Out, Err string
	Dir      string
	Work     string
	Rows     []journal.Row
	Details  []journal.Detail
}

// runIn runs a command in a fresh workspace, prepared by setup, and checks its
// journal by all rules.
func runIn(t *testing.T, c Config, setup func(work string), command ...string) *recorded {
	t.Helper()
	r, err := tryRun(t, c, setup, command...)
	var u *Unavailable
	if errors.As(err, &u) {
		t.Skipf("the recorder does not work here: %v (%s)", err, u.Hint)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryRun(t *testing.T, c Config, setup func(work string), command ...string) (*recorded, error) {
	t.Helper()
	r := &recorded{Dir: t.TempDir()}
	if c.Workspace == "" {
		c.Workspace = filepath.Join(t.TempDir(), "work")
		if err := os.Mkdir(c.Workspace, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.Work = c.Workspace
	if setup != nil {
		setup(c.Workspace)
	}
	if err := os.Chmod(r.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.RunDir, c.Command = r.Dir, command
	if c.Env == nil {
		c.Env = os.Environ()
	}
	var out, errOut bytes.Buffer
	if c.Stdout == nil {
		c.Stdout = &out
	}
	if c.Stderr == nil {
		c.Stderr = &errOut
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var err error
	r.Result, err = Run(ctx, c)
	r.Out, r.Err = out.String(), errOut.String()
	r.read(t)
	return r, err
}

func (r *recorded) read(t *testing.T) {
	t.Helper()
	rows, err := os.Open(filepath.Join(r.Dir, journal.RowsFile))
	if err != nil {
		return
	}
	defer rows.Close()
	c := journal.NewChecker()
	for line, err := range journal.Rows(rows) {
		if err != nil {
			t.Fatalf("journal: %v", err)
		}
		row, err := c.Add(line.Raw)
		if err != nil {
			t.Fatalf("journal: %v", err)
		}
		r.Rows = append(r.Rows, row)
	}
	details, err := os.Open(filepath.Join(r.Dir, journal.DetailsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer details.Close()
	for raw, err := range journal.Details(details) {
		if err != nil {
			t.Fatalf("details: %v", err)
		}
		d, err := journal.ParseDetail(raw)
		if err != nil {
			t.Fatalf("details: %v", err)
		}
		r.Details = append(r.Details, d)
	}
}

// find returns the rows of an operation on a path, oldest first.
func (r *recorded) find(op journal.Op, path string) (rows []journal.Row) {
	for i, row := range r.Rows {
		if row.Op == op && r.Details[i].Path == path {
			rows = append(rows, row)
		}
	}
	return rows
}

// content of a row: its text or its object.
func (r *recorded) content(t *testing.T, seq uint64) string {
	t.Helper()
	d := r.Details[seq]
	if d.SHA256 == nil {
		return string(d.Text)
	}
	name := strings.ToLower(hexOf(d.SHA256))
	b, err := os.ReadFile(filepath.Join(r.Dir, objectsDir, name[:2], name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestCat(t *testing.T) {
	r := runIn(t, Config{}, func(work string) {
		write(t, work, "file", "hello\n")
	}, "sh", "-c", "cat file; echo oops >&2; exit 3")
	if r.Out != "hello\n" || r.Err != "oops\n" || r.Code != 3 || r.Outcome != journal.Failed {
		t.Errorf("got %q, %q, code %d, outcome %d", r.Out, r.Err, r.Code, r.Outcome)
	}
	opens := r.find(journal.OpOpen, filepath.Join(r.Work, "file"))
	if len(opens) != 1 {
		t.Fatalf("got %d open rows of file, want 1\n%s", len(opens), r.dump())
	}
	row := opens[0]
	if row.Dir != journal.DirIn || row.Origin != journal.OriginInput || row.Size != 6 || row.Flags != journal.FlagRead {
		t.Errorf("got row %+v", row)
	}
	if got := r.content(t, row.Seq); got != "hello\n" {
		t.Errorf("got content %q", got)
	}
	if r.Final.Delta != (journal.DeltaResult{}) {
		t.Errorf("got delta %v, want nothing changed", r.Final.Delta)
	}
}

func TestDoctor(t *testing.T) {
	checks := Doctor()
	if len(checks) < 7 {
		t.Fatalf("got %d checks, want at least 7", len(checks))
	}
	for _, c := range checks {
		if c.ID == "" || c.Got == "" || c.OK == (c.Hint != "") {
			t.Errorf("got %+v, want an id, what happened, and a hint exactly if it failed", c)
		}
		t.Logf("%+v", c)
	}
	run := checks[len(checks)-1]
	for _, c := range checks {
		if run.OK && !c.OK {
			t.Errorf("%s failed (%s) but a whole run works", c.ID, c.Got)
		}
	}
}

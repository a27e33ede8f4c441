package sandbox

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *recorded) dump() string {
	var b strings.Builder
	for i, row := range r.Rows {
		d := r.Details[i]
		fmt.Fprintf(&b, "%d p%d op%d dir%d org%d res%d fl%x size%d obj%d %s %s %s %q %s\n", row.Seq, row.Proc, row.Op, row.Dir, row.Origin,
			row.Result, uint32(row.Flags), row.Size, row.Object, d.Syscall, d.Path, d.Path2, d.Text, d.Note)
	}
	return b.String()
}

// TestShell is for looking at one command's rows: it runs CLEANRUN_TRY.
func TestShell(t *testing.T) {
	command := os.Getenv("CLEANRUN_TRY")
	if command == "" {
		t.Skip("set CLEANRUN_TRY to a shell command")
	}
	r := runIn(t, Config{Observe: os.Getenv("CLEANRUN_OBSERVE") != ""}, nil, "sh", "-c", command)
	t.Logf("%s\n%s\n%s\n%+v", r.Out, r.Err, r.dump(), r.Result)
}

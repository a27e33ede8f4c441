package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// eatRole takes memory in steps of 1 MiB until it has 256, or cannot.
func eatRole([]string) int {
	var all [][]byte
	for range 256 {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
	}
	os.Stdout.WriteString("ate it all\n")
	return len(all) - 256
}

func reached(r *recorded, what string) bool {
	for _, l := range r.Limits {
		if strings.HasPrefix(l, what+": ") && strings.Contains(l, "reached") {
			return true
		}
	}
	return false
}

// A program that takes more memory than it may fails; the run goes on to be graded.
func TestSandboxMemoryLimit(t *testing.T) {
	for name, limit := range map[string]uint64{"positive control": 1 << 30, "limited": 96 << 20} {
		t.Run(name, func(t *testing.T) {
			c := phased(t, "", "x", "echo 1")
			self(t, filepath.Join(c.Workspace, "role"))
			c.Command = []string{"./role"}
			c.Env = append(environment(filepath.Join(t.TempDir(), "home")), roleVar+"=eat", "GOMEMLIMIT=off")
			c.Limits.Memory = limit
			r := run(t, c)
			if ate := strings.HasPrefix(r.stdout, "ate it all\n"); ate != (name == "positive control") {
				t.Errorf("took all: %v, code %d\n%.300s", ate, r.Code, r.stderr)
			}
			if r.rewarded() != "1 by 2" || len(r.Limits) == 0 || !strings.HasPrefix(r.Limits[0], "memory: ") {
				t.Errorf("reward %q limits %q", r.rewarded(), r.Limits)
			}
			last := r.rows[len(r.rows)-1].D.Args
			if last["limit-memory"] != limit && last["limit-memory-cgroup"] != limit {
				t.Errorf("the final row's detail says %v", last)
			}
			r.closed(t)
		})
	}
}

// What a run adds is bounded in every place that it can write to.
func TestSandboxDiskLimit(t *testing.T) {
	needs(t, "head")
	const most = 4 << 20
	for name, c := range map[string]struct {
		script string
		met    bool // the watch ended it; else the kernel refused
		ok     bool
	}{
		"positive control": {"head -c 1000000 /dev/zero > a; head -c 1000000 /dev/zero > /tmp/b", false, true},
		"one file":         {"head -c 9000000 /dev/zero > a", false, false},
		"tmp":              {"head -c 3000000 /dev/zero > /tmp/a && head -c 3000000 /dev/zero > /tmp/b", false, false},
		"shared memory":    {"head -c 3000000 /dev/zero > /dev/shm/a && head -c 3000000 /dev/zero > /dev/shm/b", false, false},
		"many files":       {"mkdir -p d/e; i=0; while [ $i -lt 300 ]; do head -c 1000000 /dev/urandom > d/e/$i; i=$((i+1)); sleep 0.1; done; echo all", true, false},
		"many places":      {"head -c 3000000 /dev/urandom > a; head -c 3000000 /dev/urandom > /tmp/b; sleep 100", true, false},
		"left behind":      {"(setsid sleep 300 &); head -c 3000000 /dev/urandom > a; head -c 3000000 /dev/urandom > b; sleep 100", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := phased(t, "", c.script, "echo 1")
			cfg.Limits.Disk = most
			r := run(t, cfg)
			if os.Getenv(backVar) == sandbox.PlainBackend && (name == "tmp" || name == "shared memory") {
				if !reached(r, "disk") { // there it is the host's: the watch or the result says so
					t.Errorf("code %d limits %q", r.Code, r.Limits)
				}
				return
			}
			if ok := r.Code == 0; ok != c.ok || reached(r, "disk") != c.met {
				t.Errorf("code %d limits %q, want success %v, ended by the watch %v; stderr %q", r.Code, r.Limits, c.ok, c.met, r.stderr)
			}
			if c.met && r.Code != 137 {
				t.Errorf("code %d, want that of SIGKILL", r.Code)
			}
			if r.Final.Born != r.Final.Ended || r.Final.Lost != 0 {
				t.Errorf("accounts: %+v", r.Final)
			}
		})
	}
}

// A fork bomb stays small.
func TestSandboxProcessLimit(t *testing.T) {
	const twenty = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 300 & done; "
	const count = "$(cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep)"
	c := phased(t, "", twenty+"until [ "+count+" -ge 20 ]; do :; done; echo 20", "echo 1")
	c.Timeout = 2 * time.Minute
	r := run(t, c)
	c = phased(t, "", twenty+"sleep 1; echo "+count, "echo 1")
	c.Limits.Processes = 8
	limited := run(t, c)
	if r.stdout != "20\n1\n" || reached(r, "processes") {
		t.Errorf("without a limit: stdout %q limits %q", r.stdout, r.Limits)
	}
	// The count itself is killed, or sees no more than there may be.
	if n, _, counted := strings.Cut(limited.stdout, "\n1\n"); counted && len(n) > 1 || !reached(limited, "processes") {
		t.Errorf("with a limit of 8: %q processes, limits %q, stderr %q", n, limited.Limits, limited.stderr)
	}
	limited.closed(t)
	c = phased(t, "", "b() { b & b; }; b", "echo 1")
	c.Limits.Processes, c.Timeout = 50, 2*time.Second
	bomb := run(t, c)
	if !reached(bomb, "processes") || bomb.rewarded() != "1 by 2" {
		t.Errorf("limits %q reward %q", bomb.Limits, bomb.rewarded())
	}
	bomb.closed(t)
}

// A run that is stopped while it is graded is cancelled, and has no reward.
func TestSandboxCancelWhileGrading(t *testing.T) {
	c := phased(t, "", "true", "echo 1; echo grading >&2; sleep 300")
	c.RunDir, c.Env = runDir(t), environment(filepath.Join(t.TempDir(), "home"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Stderr = writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil })
	res, err := sandbox.Run(ctx, c)
	var un *sandbox.Unavailable
	if errors.As(err, &un) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if res.Outcome != journal.Cancelled || len(res.Rewards) != 0 || len(res.Phases) != 1 {
		t.Errorf("got %+v", res)
	}
	readRows(t, c.RunDir)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// The limit of the store ends storing, not the run; the run says that it lost
// content.
func TestSandboxStoreLimit(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	for i := range 8 {
		write(t, filepath.Join(ws, fmt.Sprint(i)), strings.Repeat(fmt.Sprint(i), 1<<20))
	}
	script := "for i in 0 1 2 3 4 5 6 7; do cat $i | wc -c; done; echo done; head -c 2000000 /dev/zero | tr '\\0' z > new; wc -c < new"
	size := func(dir string) (n int64) {
		filepath.WalkDir(filepath.Join(dir, "objects"), func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if fi, err := d.Info(); err == nil {
					n += fi.Size()
				}
			}
			return err
		})
		return n
	}
	for _, limit := range []uint64{0, 6 << 20} {
		r := run(t, sandbox.Config{Command: []string{"/bin/sh", "-c", script}, Workspace: ws, StoreMax: limit})
		lost := r.find(func(e entry) bool { return e.Op == journal.OpLost })
		unreadable := r.find(func(e entry) bool { return e.Flags&journal.FlagUnreadable != 0 })
		if !strings.Contains(r.stdout, "done") || r.Outcome != journal.Completed {
			t.Errorf("limit %d: got %q, %v, want the run to go on", limit, r.stdout, r.Outcome)
		}
		if limit == 0 {
			if r.Final.Lost != 0 || len(unreadable) != 0 || size(r.dir) < 8<<20 {
				t.Errorf("positive control: lost %v, unreadable %v", lost, unreadable)
			}
			continue
		}
		if size(r.dir) > int64(limit) {
			t.Errorf("got %d bytes stored, want at most %d", size(r.dir), limit)
		}
		if len(lost) != 1 || r.Final.Lost != 1 || !strings.Contains(lost[0].D.Note, "limit of stored content") {
			t.Errorf("got lost rows %v and %d, want one that says why", lost, r.Final.Lost)
		}
		if len(unreadable) == 0 {
			t.Error("no row says that its content is not there")
		}
		for _, e := range unreadable {
			if e.Size != 0 || len(e.D.SHA256) != 0 {
				t.Errorf("%v claims a content that is not stored", e)
			}
		}
	}
}

package sandbox_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// A file of any size takes no space and no time to make. It must not take hours to
// record, and a run that has one is not clean.
func TestSandboxHugeWrittenFile(t *testing.T) {
	needs(t, "truncate", "head")
	for name, script := range map[string]string{
		"more than an object":  "truncate -s 1T big && head -c 100 big | wc -c",
		"mostly holes":         "truncate -s 60G big && echo data >> big && head -c 100 big | wc -c",
		"moved and never read": "truncate -s 1T part && mv part big && echo 100",
	} {
		t.Run(name, func(t *testing.T) {
			ws := folder(t, filepath.Join(base(t), "ws"))
			began := time.Now()
			r := run(t, shell(ws, script))
			if strings.Contains(r.stderr, "File too large") {
				t.Skipf("the file system has no such files: %s", r.stderr)
			}
			if d := time.Since(began); d > 2*time.Minute { // seconds on an idle machine
				t.Errorf("took %v", d)
			}
			if r.stdout != "100\n" || r.Outcome != journal.Completed || r.Final.Delta.Unexplained != 0 {
				t.Errorf("got %q %v %+v (%s)", r.stdout, r.Outcome, r.Final.Delta, r.stderr)
			}
			r.has(t, "what was written is lost", func(e entry) bool { return e.Op == journal.OpLost })
			if r.Final.Lost == 0 {
				t.Error("the final row counts nothing as lost")
			}
		})
	}
}

// Closing a recording can take long. Whoever asks for an end again gets it, and no
// journal that passes for a finished one.
func TestSandboxStopWhileClosing(t *testing.T) {
	for name, stop := range map[string]unix.Signal{"positive control": 0, "SIGTERM": unix.SIGTERM, "SIGINT": unix.SIGINT} {
		t.Run(name, func(t *testing.T) {
			ws, dir := folder(t, filepath.Join(base(t), "ws")), runDir(t)
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			defer writer.Close()
			// What the run printed is passed on before the end; nobody reads it.
			if _, err := unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
				t.Fatal(err)
			}
			in, release := io.Pipe()
			c := shell(ws, "head -c 20000 /dev/zero; read x || :")
			c.RunDir, c.Env, c.Stdin, c.Stdout = dir, environment(t.TempDir()), in, writer
			type end struct {
				res *sandbox.Result
				err error
			}
			ended := make(chan end, 1)
			go func() {
				res, err := sandbox.Run(t.Context(), c)
				ended <- end{res, err}
			}()
			var e end
			wait := func(d time.Duration) bool {
				select {
				case e = <-ended:
					return true
				case <-time.After(d):
					return false
				}
			}
			for broker, met := 0, false; ; {
				if wait(5 * time.Millisecond) {
					var un *sandbox.Unavailable
					if errors.As(e.err, &un) {
						t.Skip(e.err)
					}
					t.Fatalf("ended early: %+v", e)
				}
				if broker == 0 {
					broker = child(os.Getpid())
				} else if one := child(broker); one != 0 && child(one) != 0 {
					met = true
					release.Close() // the command ends
				} else if met {
					break // the command is reaped
				}
			}
			if stop == 0 {
				go io.Copy(io.Discard, reader)
			}
			over := wait(200 * time.Millisecond)
			// A signal that comes before the closing has begun is one to the command.
			for n := 0; !over && n < 12; n++ {
				if stop != 0 && unix.Kill(os.Getpid(), stop) != nil {
					t.Fatal("no signal sent")
				}
				over = wait(5 * time.Second)
			}
			if !over {
				go io.Copy(io.Discard, reader)
				if wait(time.Minute); stop != 0 {
					t.Errorf("%v did not end a run that is being closed", stop)
				}
			}
			if stop == 0 {
				if e.err != nil || e.res.Outcome != journal.Completed {
					t.Errorf("got %+v, %v, want completed", e.res, e.err)
				}
				return
			}
			if e.err == nil || !strings.Contains(e.err.Error(), "being closed") {
				t.Errorf("got %+v, %v, want the error that the journal stays open", e.res, e.err)
			}
			notCompleted(t, dir)
		})
	}
}

// outside runs a script that reads the files $A and $B, the latter in the
// workspace, makes the file "ready" and waits at read; then change is called.
func outside(t *testing.T, size int64, script string, change func(a, b string)) (*recorded, string, string) {
	t.Helper()
	dir := base(t)
	ws := folder(t, filepath.Join(dir, "ws"))
	a, b := write(t, filepath.Join(dir, "host", "a"), "old content\n"), write(t, filepath.Join(ws, "b"), "old content\n")
	for _, p := range []string{a, b} {
		if size > 0 {
			if err := os.Truncate(p, size); err != nil {
				t.Fatal(err)
			}
		}
	}
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(os.Chtimes(a, old, old), os.Chtimes(b, old, old)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // times of the next change differ
	home := folder(t, filepath.Join(t.TempDir(), "home"))
	in, release := io.Pipe()
	c := shell(ws, script)
	c.RunDir, c.Observe, c.Stdin = runDir(t), true, in
	c.Env = append(environment(home), "A="+a, "B="+b)
	go func() {
		defer release.Close()
		if made(t, filepath.Join(c.RunDir, "overlay", "upper", "ready")) {
			change(a, b)
		}
	}()
	return run(t, c), a, b
}

// What a file held when it was opened is in the row. Somebody outside can change
// it while the run has it open: then the run read what no row tells.
func TestSandboxInputChangedOutside(t *testing.T) {
	const script = `exec 3< "$A" 4< "$B"; : > ready; read x; head -n 1 <&3`
	overwrite := func(t *testing.T, p, content string) {
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(content)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name   string
		size   int64
		script string
		change func(t *testing.T, a, b string)
		stdout string
		lost   string // base names of files
	}{
		{"in place", 0, script, func(t *testing.T, a, b string) { overwrite(t, a, "new content\n") }, "new content\n", "a"},
		{"in the workspace", 0, script, func(t *testing.T, a, b string) { overwrite(t, b, "new content\n") }, "old content\n", "b"},
		{"longer, times set back", 0, script, func(t *testing.T, a, b string) {
			overwrite(t, a, "new and longer content\n")
			os.Chtimes(a, time.Now().Add(-time.Hour), time.Now().Add(-time.Hour))
		}, "new and longer content\n", "a"},
		{"times set back", 0, script, func(t *testing.T, a, b string) {
			fi, err := os.Stat(a)
			if err != nil {
				t.Error(err)
				return
			}
			overwrite(t, a, "new content\n")
			os.Chtimes(a, fi.ModTime(), fi.ModTime())
		}, "new content\n", "a"},
		{"seen by a second open", 0, `exec 3< "$A"; : > ready; read x; cat "$A" > /dev/null; head -n 1 <&3`,
			func(t *testing.T, a, b string) { overwrite(t, a, "new content\n") }, "new content\n", "a"},
		{"large, mode", 65 << 20, `exec 3< "$A"; : > ready; read x`, func(t *testing.T, a, b string) { os.Chmod(a, 0o600) }, "", "a"},
		// What gives the run nothing new is no loss.
		{"nothing", 0, script, func(t *testing.T, a, b string) {}, "old content\n", ""},
		{"mode", 0, script, func(t *testing.T, a, b string) { os.Chmod(a, 0o600) }, "old content\n", ""},
		{"second name", 0, script, func(t *testing.T, a, b string) { os.Link(a, a+"2") }, "old content\n", ""},
		{"access time", 0, script, func(t *testing.T, a, b string) { os.Chtimes(a, time.Now(), time.Time{}) }, "old content\n", ""},
		{"replaced", 0, script, func(t *testing.T, a, b string) {
			write(t, a+"2", "new content\n")
			os.Rename(a+"2", a)
		}, "old content\n", ""},
		{"removed", 0, script, func(t *testing.T, a, b string) { os.Remove(a) }, "old content\n", ""},
		{"by the run", 65 << 20, `exec 3< "$B"; touch "$B"; chmod 600 "$B"; ln "$B" c; mv "$B" d; : > ready; read x`, func(t *testing.T, a, b string) {}, "", ""},
		{"written by the run", 0, `exec 3< "$B"; exec 4<> "$B"; printf old >&4; exec 4>&-; cat "$B"; : > ready; read x; cp -p "$B" c; cat c >> "$B"`,
			func(t *testing.T, a, b string) {}, "old content\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, a, b := outside(t, c.size, c.script, func(a, b string) { c.change(t, a, b) })
			if r.stdout != c.stdout || r.Outcome == journal.Abandoned {
				t.Errorf("got %q, %v (%s), want %q", r.stdout, r.Outcome, r.stderr, c.stdout)
			}
			var lost []string
			for _, e := range r.find(func(e entry) bool { return e.Op == journal.OpLost }) {
				for _, p := range []string{a, b} {
					if strings.Contains(e.D.Note, `"`+p+`" changed outside`) {
						lost = append(lost, filepath.Base(p))
					}
				}
				if !strings.Contains(e.D.Note, "changed outside") {
					t.Errorf("lost: %s", e.D.Note)
				}
			}
			if got := strings.Join(lost, " "); got != c.lost || int(r.Final.Lost) != len(lost) {
				t.Errorf("lost %q, %d in all, want %q", got, r.Final.Lost, c.lost)
			}
			if c.lost == "" {
				r.closed(t)
			}
		})
	}
}

package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// What lies on the disk when everything is killed is free of secrets too, but for
// the files that the run itself was writing (SECURITY.md).
func TestSandboxKilledRunHoldsNoSecret(t *testing.T) {
	for _, mode := range []string{"secret", "encrypt"} {
		t.Run(mode, func(t *testing.T) {
			tmp := t.TempDir()
			ws, dir := filepath.Join(tmp, "ws"), filepath.Join(tmp, "run")
			write(t, filepath.Join(ws, "conf"), "token = "+apiKey+"\n")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(tmp, "home"), 0o755)); err != nil {
				t.Fatal(err)
			}
			script := `cat conf >&2; i=0; while :; do /bin/echo "` + apiKey + ` $i" > f; cat f >&2; cat f > g; i=$((i+1)); [ $i = 20 ] && echo started; done`
			l := exec.Command("/proc/self/exe", ws, dir, script, mode)
			l.Env = append(os.Environ(), roleVar+"=secretlaunch")
			out, err := l.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var errs bytes.Buffer
			l.Stderr = &errs
			if err := l.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if line != "started\n" {
				l.Process.Kill()
				l.Wait()
				if strings.Contains(errs.String(), "not available") {
					t.Skipf("no sandbox here: %s", errs.String())
				}
				t.Fatalf("%q %v %s", line, err, errs.String())
			}
			if err := l.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			l.Wait()
			for end := time.Now().Add(time.Minute); len(processes(dir)) > 0 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			notCompleted(t, dir)
			inside := 0
			for _, h := range holders(t, dir, apiKey) {
				if strings.HasPrefix(h, "file "+filepath.Join(dir, "overlay")) {
					inside++
					continue
				}
				t.Errorf("the key is on the disk: %s", h)
			}
			if inside == 0 {
				t.Error("positive control: no file of the killed run holds the key, so the search finds nothing")
			}
		})
	}
}

func TestSandboxEncrypted(t *testing.T) {
	const to = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p" // of the age project's documentation
	r, _ := encryptedRun(t, to)
	for _, text := range []string{apiKey, "token = ", "out example", "/bin/sh", "written", "KEY="} {
		for _, h := range holders(t, r, text) {
			t.Errorf("%q is in clear: %s", text, h)
		}
	}
	for _, gone := range []string{"overlay", "secret", "grant-0"} {
		if _, err := os.Lstat(filepath.Join(r, gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there (%v)", gone, err)
		}
	}
	for _, name := range []string{"journal", "checkpoint", "detail", "key.age", "secret.age", "recipients"} {
		if st, err := os.Lstat(filepath.Join(r, name)); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}

func encryptedRun(t *testing.T, to string) (dir, ws string) {
	t.Helper()
	tmp := t.TempDir()
	dir, ws = runDir(t), filepath.Join(tmp, "ws")
	write(t, filepath.Join(ws, "conf"), "token = "+apiKey+"\n")
	if err := os.Mkdir(filepath.Join(tmp, "home"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	c := sandbox.Config{Command: []string{"/bin/sh", "-c", `cat conf; echo "out $KEY"; echo "$KEY" > written; mkdir d; chmod 000 d`}, Workspace: ws, RunDir: dir,
		Env: append(environment(filepath.Join(tmp, "home")), "KEY="+apiKey), Recipients: []string{to}, Stdout: &out, Stderr: &errs}
	res, err := sandbox.Run(t.Context(), c)
	var un *sandbox.Unavailable
	if errors.As(err, &un) {
		t.Skipf("%v (%s)", err, un.Hint)
	}
	if err != nil || res.Outcome != journal.Completed {
		t.Fatalf("%+v, %v, %s", res, err, errs.String())
	}
	return dir, ws
}

// secretLaunchRole is a launcher outside, to be killed: workspace, RUNDIR, script,
// and how the key is kept out.
func secretLaunchRole(args []string) int {
	c := sandbox.Config{
		Command: []string{"/bin/sh", "-c", args[2]}, Workspace: args[0], RunDir: args[1], Env: environment(filepath.Join(filepath.Dir(args[1]), "home")),
		Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if args[3] == "encrypt" {
		c.Recipients = []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}
	} else {
		c.Secrets = []sandbox.Secret{{Name: "KEY", Value: []byte(apiKey)}}
	}
	if _, err := sandbox.Run(context.Background(), c); err != nil {
		return fail("run:", err)
	}
	return 0
}

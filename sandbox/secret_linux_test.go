package sandbox_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// apiKey has the bytes that keys have, '/' among them, and is none.
const apiKey = "example.key-8f3Qz/0aPw+LmN4t=R7"

// nameKey can stand in a file's name.
const nameKey = "nameable.key-77aaPQ_zz81"

// holders lists what below dir holds text: contents, names, link targets and
// extended attributes, byte by byte.
func holders(t testing.TB, dir, text string) (out []string) {
	t.Helper()
	// What the run made unreadable is searched too.
	if out, err := exec.Command("chmod", "-R", "u+rwX", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.Contains(d.Name(), text) {
			out = append(out, "name "+p)
		}
		switch {
		case d.Type().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			if bytes.Contains(b, []byte(text)) {
				out = append(out, "file "+p)
			}
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			if strings.Contains(to, text) {
				out = append(out, "link "+p)
			}
		}
		list := make([]byte, 4096)
		n, _ := unix.Llistxattr(p, list)
		for name := range strings.SplitSeq(string(list[:max(n, 0)]), "\x00") {
			value := make([]byte, 4096)
			if n, err := unix.Lgetxattr(p, name, value); err == nil && bytes.Contains(value[:n], []byte(text)) || strings.Contains(name, text) {
				out = append(out, "attribute "+p)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// everywhere does with a key what programs do with one.
const everywhere = `
cat conf                                  # a file that the agent reads
cat granted/conf
echo "out $KEY"; echo "err $KEY" >&2      # its output
cat                                       # stdin
printf 'example.key-8f3'; sleep 0.2; printf 'Qz/0aPw+LmN4t=R7\n'
/bin/echo "--token=$KEY" >/dev/null       # an argument
env OTHER="$KEY" true                     # the environment of a later program
echo x > "in-$NAMEKEY"; mkdir "dir-$NAMEKEY"; ln -s "$KEY" link; echo y > "dir-$NAMEKEY/f"; mv "in-$NAMEKEY" "to-$NAMEKEY"; echo z > "to-${NAMEKEY}2"
echo "key=$KEY" > written; cat written; echo "more $KEY" >> written; rm -f gone; echo "$KEY" > gone; cat gone; rm gone
echo "$KEY" >> conf                       # appended to a file that was there
i=0; while [ $i -lt 40000 ]; do echo "line $i of a large file that holds $KEY once in a while"; i=$((i+4000)); done > large
head -c 1500000 /dev/zero >> large; echo "$KEY" >> large; cat large > /dev/null
echo "$KEY" > "$TMPDIR/private"; cat "$TMPDIR/private" > granted/copy
chmod 000 written
cat "/no/such/$KEY" 2>/dev/null; cd "$NAMEKEY" 2>/dev/null
exit 0`

var secrets = []sandbox.Secret{{Name: "KEY", Value: []byte(apiKey)}, {Name: "NAMEKEY", Value: []byte(nameKey)}}

func secretRun(t *testing.T, c sandbox.Config) (r *recorded, ws string) {
	t.Helper()
	tmp := t.TempDir()
	ws = filepath.Join(tmp, "ws")
	write(t, filepath.Join(ws, "conf"), "token = "+apiKey+"\n")
	grant := filepath.Join(base(t), "granted")
	write(t, filepath.Join(grant, "conf"), "token = "+apiKey+" in a grant\n")
	if err := os.Symlink(grant, filepath.Join(ws, "granted")); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(tmp, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	c.Command, c.Workspace = []string{"/bin/sh", "-c", everywhere}, ws
	c.Env = append(environment(home), "KEY="+apiKey, "NAMEKEY="+nameKey, "TMPDIR=/tmp")
	c.Grants = []scope.Root{{Path: grant, Mode: scope.WriteTree, Class: scope.Grant}}
	c.Stdin = strings.NewReader("stdin " + apiKey + "\n")
	return run(t, c), ws
}

func TestSandboxSecretIsNowhereInRunDir(t *testing.T) {
	t.Run("positive control", func(t *testing.T) {
		r, _ := secretRun(t, sandbox.Config{})
		var files, names int
		for _, h := range append(holders(t, r.dir, apiKey), holders(t, r.dir, nameKey)...) {
			if strings.HasPrefix(h, "file") {
				files++
			} else {
				names++
			}
		}
		if files < 6 || names < 4 {
			t.Errorf("without -secret: got %d files and %d names with the key, want many: the search does not work", files, names)
		}
	})
	r, ws := secretRun(t, sandbox.Config{Secrets: secrets, RemoveKeys: true})
	for _, h := range append(holders(t, r.dir, apiKey), holders(t, r.dir, nameKey)...) {
		t.Errorf("the key is in RUNDIR: %s", h)
	}
	// A half of it only where it was written in halves at most three bytes long.
	for _, h := range holders(t, r.dir, apiKey[4:]) {
		t.Errorf("the end of the key is in RUNDIR: %s", h)
	}
	for _, want := range []string{"token = " + apiKey, "out " + apiKey, "stdin " + apiKey, "key=" + apiKey} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the caller did not get %q: what the program sees and says is not to be changed", want)
		}
	}
	if !strings.Contains(r.stderr, "err "+apiKey) {
		t.Errorf("got stderr %q", r.stderr)
	}
	r.closed(t)
	stars := strings.Repeat("*", len(apiKey))
	flagged := map[journal.Op]int{}
	for _, e := range r.rows {
		if e.Flags&journal.FlagRemoved != 0 {
			flagged[e.Op]++
		}
		if e.Flags&journal.FlagOutOfScope != 0 && e.Result == 0 {
			t.Errorf("out of scope: %v", e)
		}
	}
	for _, op := range []journal.Op{journal.OpOpen, journal.OpWrote, journal.OpArgv, journal.OpMkdir, journal.OpRename, journal.OpSymlink, journal.OpStdin, journal.OpStdout, journal.OpStderr} {
		if flagged[op] == 0 {
			t.Errorf("no %v row says that something was removed", op)
		}
	}
	if start := r.rows[0].Start; !slices.Contains(start.Blind, "secret-values") || slices.Contains(start.Blind, "secret-patterns") {
		t.Errorf("got blind %q, want the start row to say that values were removed", start.Blind)
	}
	env := r.has(t, "environment", func(e entry) bool { return e.Op == journal.OpArgv && e.D.Note == "environment" })
	if !bytes.Contains(env.D.Text, []byte("KEY="+stars)) || uint64(len(env.D.Text)) != env.Size {
		t.Errorf("got environment %q of size %d", env.D.Text, env.Size)
	}
	conf := r.opens(filepath.Join(ws, "conf"))
	if len(conf) == 0 || conf[0].Size != uint64(len("token = "+apiKey+"\n")) {
		t.Errorf("got %v, want the file's true size", conf)
	}
	if b, err := os.ReadFile(filepath.Join(ws, "conf")); err != nil || string(b) != "token = "+apiKey+"\n" {
		t.Errorf("the workspace was changed: %q, %v", b, err)
	}
}

// Apply copies what the run really wrote; then RUNDIR is scrubbed.
func TestSandboxSecretIsApplied(t *testing.T) {
	dir := runDir(t)
	c := sandbox.Config{RunDir: dir, Secrets: secrets, ApplyFirst: true}
	_, ws := secretRun(t, c)
	if len(holders(t, dir, apiKey)) == 0 {
		t.Error("positive control: what the run changed was scrubbed before it could be applied")
	}
	if _, _, err := sandbox.Apply(dir, ws); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.Scrub(c); err != nil {
		t.Fatal(err)
	}
	for _, h := range holders(t, dir, apiKey) {
		t.Errorf("the key is in RUNDIR: %s", h)
	}
	if err := os.Chmod(filepath.Join(ws, "written"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(ws, "written")); err != nil || string(b) != "key="+apiKey+"\nmore "+apiKey+"\n" {
		t.Errorf("applied %q, %v", b, err)
	}
}

// Keys that nobody named are known by their shape.
func TestSandboxWellKnownKeys(t *testing.T) {
	// Made up, in two pieces: a scanner of repositories must not take them for real.
	keys := []string{"sk-" + "proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6", "AKIA" + "Z7EXAMPLEKEY2345", "ghp" + "_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"}
	ws := filepath.Join(t.TempDir(), "ws")
	write(t, filepath.Join(ws, ".env"), strings.Join(keys, "\n")+"\n")
	c := sandbox.Config{Command: []string{"/bin/sh", "-c", "cat .env; cp .env copy; cat copy >&2; echo tok-0123456789abcdef"}, Workspace: ws}
	for _, remove := range []bool{false, true} {
		c.RunDir, c.RemoveKeys, c.RemovePatterns = "", remove, nil
		if remove {
			c.RemovePatterns = []string{`tok-[0-9a-f]{16}`}
		}
		r := run(t, c)
		for _, k := range append(keys, "tok-0123456789abcdef") {
			if h := holders(t, r.dir, k); len(h) > 0 == remove {
				t.Errorf("remove %v: %s is in %q", remove, k[:5], h)
			}
		}
		if r.Final.Lost != 0 || !strings.Contains(r.stdout, keys[0]) {
			t.Errorf("remove %v: lost %d, stdout %q", remove, r.Final.Lost, r.stdout)
		}
	}
}

// What hides more than a few keys could hide an answer: it is stored, and the run
// says so.
func TestSandboxManyKeysAreLost(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	key := "sk-" + "proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"
	write(t, filepath.Join(ws, "few"), strings.Repeat(key+"\n", 10))
	write(t, filepath.Join(ws, "many"), strings.Repeat(key+"\n", 200))
	for _, name := range []string{"few", "many", "made"} {
		script := "cat " + name + " >/dev/null"
		if name == "made" {
			script = "i=0; while [ $i -lt 200 ]; do echo sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6; i=$((i+1)); done > f; cat f"
		}
		r := run(t, sandbox.Config{Command: []string{"/bin/sh", "-c", script}, Workspace: ws, RemoveKeys: true})
		if r.KeysLeft != (name != "few") {
			t.Errorf("%s: KeysLeft is %v", name, r.KeysLeft)
		}
		lost := r.find(func(e entry) bool { return e.Op == journal.OpLost })
		if name == "few" && (len(lost) != 0 || len(holders(t, r.dir, key)) != 0) {
			t.Errorf("few: got lost rows %v", lost)
		}
		// Else a run that fails could make itself unscored.
		if name == "made" && (len(lost) != 0 || r.Final.Lost != 0) {
			t.Errorf("made: got lost rows %v for what the run wrote itself", lost)
		}
		if name == "many" && (len(lost) != 1 || !strings.Contains(lost[0].D.Note, "shape of keys") || r.Final.Lost == 0) {
			t.Errorf("many: got lost rows %v and %d, want one that says why", lost, r.Final.Lost)
		}
	}
}

func TestSandboxRefusesSecrets(t *testing.T) {
	tmp := t.TempDir()
	ws := filepath.Join(tmp, "ws-hunter2222")
	write(t, filepath.Join(ws, "f"), "x")
	one := func(v string) sandbox.Config {
		return sandbox.Config{Secrets: []sandbox.Secret{{Name: "A", Value: []byte(v)}}}
	}
	controls, named, graded := one("elephant"), one("my-agent"), one("grader-1")
	controls.ControlText = "an elephant is a control"
	named.Start.Agent = "my-agent 1"
	graded.Grade = []string{"grader-1"}
	graded.Start.Phases = &journal.Phases{Setup: []string{}, Grade: graded.Grade, Reward: "exit-code", Guard: []string{}}
	for name, c := range map[string]struct {
		config sandbox.Config
		got    string // part of what is refused
	}{
		"short":                      {one("1234567"), "a value of 7 bytes"},
		"long":                       {one(strings.Repeat("ab", 400)), "a value of 800 bytes"},
		"two words":                  {one("the answer"), "a blank in it"},
		"in a root":                  {one("hunter2222"), "one in a path of the scope"},
		"in the controls":            {controls, "one of them there"},
		"in a name":                  {named, "one of them there"},
		"in the grader":              {graded, "one of them there"},
		"in a name of the workspace": {one("hunter3333"), "one in baseline"},
		"open pattern":               {sandbox.Config{RemovePatterns: []string{"sk-[a-z]+"}}, "bound it"},
		"pattern of text":            {sandbox.Config{RemovePatterns: []string{"[ -~]{8,500}"}}, "a match may hold ' '"},
		"no recipient":               {sandbox.Config{Recipients: []string{"age1nonsense"}}, "age1nonsense"},
	} {
		c.config.Command, c.config.Workspace, c.config.RunDir, c.config.Env = []string{"/bin/true"}, ws, runDir(t), environment(tmp)
		if name == "in a name of the workspace" {
			write(t, filepath.Join(c.config.RunDir, "baseline"), "...f-hunter3333...")
		}
		var refused *sandbox.Refused
		if _, err := sandbox.Run(t.Context(), c.config); !errors.As(err, &refused) || refused.Hint == "" || !strings.Contains(refused.Got, c.got) {
			t.Errorf("%s: got %v, want a refusal because of %q", name, err, c.got)
		}
	}
}

// The backend without namespaces works in RUNDIR itself: nothing of that stays.
func TestSandboxPlainSecretIsNowhereInRunDir(t *testing.T) {
	for _, mode := range []string{"none", "secret", "encrypt"} {
		tmp := t.TempDir()
		ws, home := filepath.Join(tmp, "ws"), filepath.Join(tmp, "home")
		write(t, filepath.Join(ws, "conf"), "token = "+apiKey+"\n")
		if err := os.Mkdir(home, 0o755); err != nil {
			t.Fatal(err)
		}
		dir := runDir(t)
		var out, errs bytes.Buffer
		c := sandbox.Config{Backend: sandbox.PlainBackend, Workspace: ws, RunDir: dir, Env: append(environment(home), "KEY="+apiKey), Stdout: &out, Stderr: &errs,
			Command: []string{"/bin/sh", "-c", `cat conf; echo "out $KEY"; echo "$KEY" > written; cat written; echo "$KEY" > "$HOME/h"; cat "$HOME/h"`}}
		switch mode {
		case "secret":
			c.Secrets = secrets[:1]
		case "encrypt":
			c.Recipients = []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}
		}
		res, err := sandbox.Run(t.Context(), c)
		var un *sandbox.Unavailable
		if errors.As(err, &un) {
			t.Skipf("%v (%s)", err, un.Hint)
		}
		if err != nil || res.Outcome != journal.Completed || strings.Count(out.String(), apiKey) != 4 {
			t.Fatalf("%s: %+v, %v, %q %s", mode, res, err, out.String(), errs.String())
		}
		if h := holders(t, dir, apiKey); len(h) > 0 != (mode == "none") {
			t.Errorf("%s: the key is in %q", mode, h)
		}
	}
}

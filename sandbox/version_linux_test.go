package sandbox_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// content of a row: its text, or its object.
func (r *recorded) content(t *testing.T, e entry) string {
	t.Helper()
	if e.D.SHA256 == nil {
		return string(e.D.Text)
	}
	name := hex.EncodeToString(e.D.SHA256)
	b, err := os.ReadFile(filepath.Join(r.dir, "objects", name[:2], name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// story is what rows of paths below the workspace say, a line each.
func (r *recorded) story(t *testing.T, ws string) string {
	t.Helper()
	numbers := map[uint32]int{}
	var b strings.Builder
	for _, e := range r.rows {
		rel, ok := strings.CutPrefix(e.D.Path, ws+"/")
		if !ok || e.Op == journal.OpDir || e.Result != 0 || e.Flags&journal.FlagPath != 0 {
			continue
		}
		if numbers[e.Object] == 0 {
			numbers[e.Object] = len(numbers) + 1
		}
		verb := map[journal.Op]string{
			journal.OpOpen: "open", journal.OpWrote: "wrote", journal.OpUnlink: "unlink", journal.OpRename: "rename", journal.OpLink: "link",
			journal.OpTruncate: "truncate", journal.OpExec: "exec", journal.OpInterp: "interp",
		}[e.Op]
		fmt.Fprintf(&b, "%s %s", verb, rel)
		if e.Object != 0 {
			fmt.Fprintf(&b, " #%d", numbers[e.Object])
		}
		for _, f := range []struct {
			flag journal.Flags
			name string
		}{{journal.FlagRead, "r"}, {journal.FlagWrite, "w"}, {journal.FlagCreate, "create"}, {journal.FlagTrunc, "trunc"}, {journal.FlagLive, "live"}} {
			if e.Flags&f.flag != 0 {
				b.WriteString(" " + f.name)
			}
		}
		origin := map[journal.Origin]string{journal.OriginInput: "input", journal.OriginRun: "run"}[e.Origin]
		if e.Dir != journal.DirNone {
			fmt.Fprintf(&b, " %s %q", origin, r.content(t, e))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Each version of a file is told when it is read, cut or lost, and at the end;
// a foreign version that is opened for appending is exposed.
func TestSandboxVersions(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"write then read", `printf one > f; read x < f; printf two >> f; read x < f`, `
open f #1 w create run "f"
wrote f #1 run "one"
open f #1 r run "one"
open f #1 w
wrote f #1 run "onetwo"
open f #1 r run "onetwo"
`},
		{"append to foreign", `printf x >> in; read x < in`, `
open in #1 w input "data"
wrote in #1 run "datax"
open in #1 r run "datax"
`},
		{"cut foreign", `printf x > in`, `
open in #1 w trunc
wrote in #1 run "x"
`},
		{"cut own", `printf one > f; printf two > f`, `
open f #1 w create run "f"
wrote f #1 run "one"
open f #1 w trunc
wrote f #1 run "two"
`},
		{"read foreign twice", `read x < in; read x < in`, `
open in #1 r input "data"
open in #1 r input "data"
`},
		{"removed", `printf one > f; rm f; printf two > f`, `
open f #1 w create run "f"
wrote f #1 run "one"
unlink f #1
open f #2 w create run "f"
wrote f #2 run "two"
`},
		{"hard link", `printf one > f; ln f second; printf x >> second; read x < f`, `
open f #1 w create run "f"
link f #1 run "second"
wrote f #1 run "one"
open second #1 w
wrote second #1 run "onex"
open f #1 r run "onex"
`},
		{"read and write untouched", `exec 3<> in; exec 3>&-; read x < in`, `
open in #1 r w input "data"
open in #1 r input "data"
`},
		{"rename over", `printf a > a; printf b > b; mv a b; read x < b`, `
open a #1 w create run "a"
open b #2 w create run "b"
wrote b #2 run "b"
rename a #1 run "b"
wrote b #1 run "a"
open b #1 r run "a"
`},
		{"empty", `: > f; read x < f`, `
open f #1 w create run "f"
open f #1 r run ""
`},
		{"live", `exec 3> f; printf one >&3; read x < f; printf two >&3`, `
open f #1 w create run "f"
wrote f #1 live run "one"
open f #1 r live run "one"
wrote f #1 run "onetwo"
`},
		{"truncate", `truncate -s 2 in; read x < in`, `
truncate in #1 input "data"
wrote in #1 run "da"
open in #1 r run "da"
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ws := folder(t, filepath.Join(base(t), "ws"))
			write(t, filepath.Join(ws, "in"), "data")
			if c.name == "truncate" { // coreutils opens and cuts by descriptor
				needs(t, "perl")
				c.script = `perl -e 'truncate("in", 2)'; read x < in`
			}
			r := run(t, shell(ws, c.script))
			if got := r.story(t, ws); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got\n%swant%s%s", got, c.want, r.stderr)
			}
			r.closed(t)
		})
	}
}

// A directory of the lower layer cannot be renamed by the kernel on an overlay.
func TestSandboxRenameDirectory(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	for _, p := range []string{"d/a", "d/sub/b", "keep/c"} {
		write(t, filepath.Join(ws, p), p)
	}
	r := run(t, shell(ws, "chmod 750 d/sub; mv d e; cat e/a e/sub/b; stat -c %a e/sub; mkdir f; echo x > f/x; mv f g; cat g/x; mv keep/../keep kept; ls; mv e e/inside"))
	if want := "d/ad/sub/b750\nx\ne\ng\nkept\n"; r.stdout != want {
		t.Errorf("got %q (%s), want %q", r.stdout, r.stderr, want)
	}
	r.closed(t)
	if e := r.has(t, "rename row", func(e entry) bool { return e.Op == journal.OpRename && e.D.Path == ws+"/d" }); e.D.Path2 != ws+"/e" || e.Result != 0 || r.content(t, e) != "e" {
		t.Errorf("got %v", e)
	}
	r.has(t, "refused rename into itself", func(e entry) bool { return e.Op == journal.OpRename && e.Result == int32(unix.EINVAL) })
	needs(t, "python3")
	// What is below a folder moves with it, so rows say that it is one.
	r = run(t, shell(ws, `echo x > x; mkdir f; mv f h; mv x y; exec python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b"y", -100, b"h", 2)'`))
	r.closed(t)
	for from, folder := range map[string]bool{"f": true, "x": false, "y": true} { // y and the folder h change places
		if e := r.has(t, "rename of "+from, func(e entry) bool { return e.Op == journal.OpRename && e.D.Path == ws+"/"+from }); e.Flags&journal.FlagDirectory != 0 != folder {
			t.Errorf("%s: got flags 0x%x, want directory %v", from, uint32(e.Flags), folder)
		}
	}
}

// stdin is the driver's or the model's, argv of the command the driver's, of
// later execs the run's.
func TestSandboxOrigins(t *testing.T) {
	for role, want := range map[string]journal.Origin{"": journal.OriginDriver, "driver": journal.OriginDriver, "model": journal.OriginModel} {
		ws := folder(t, filepath.Join(base(t), "ws"))
		c := shell(ws, "cat; env true later")
		c.Stdin = bytes.NewReader([]byte("from outside"))
		if role != "" {
			c.Start.Channels = []journal.Channel{{Name: "stdin", Role: role}}
		}
		r := run(t, c)
		e := r.has(t, "stdin", func(e entry) bool { return e.Op == journal.OpStdin })
		if e.Origin != want || e.Dir != journal.DirIn || r.content(t, e) != "from outside" {
			t.Errorf("role %q: got %v, origin %d", role, e, e.Origin)
		}
		argv := r.find(func(e entry) bool { return e.Op == journal.OpArgv })
		if len(argv) < 4 || argv[0].Origin != journal.OriginDriver || argv[1].Origin != journal.OriginDriver || argv[2].Origin != journal.OriginRun {
			t.Errorf("got argument vectors %v", argv)
		}
		last := argv[len(argv)-1]
		if got := r.content(t, last); got != "true\x00later" {
			t.Errorf("got argv %q", got)
		}
	}
}

// A shared library opened by the loader, a script in a script, a program by
// descriptor: each file that the kernel opens for an exec is a row.
func TestSandboxInterpreters(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	for name, content := range map[string]string{"outer": "#!" + ws + "/inner -x  \nignored\n", "inner": "#!/bin/sh\necho \"$@\"\n"} {
		if err := os.Chmod(write(t, filepath.Join(ws, name), content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := run(t, shell(ws, "./outer a b; PATH=. outer c"))
	if want := "-x ./outer a b\n-x ./outer c\n"; r.stdout != want {
		t.Errorf("got %q (%s), want %q", r.stdout, r.stderr, want)
	}
	if l := r.find(func(e entry) bool { return e.Op == journal.OpKilled }); len(l) != 0 {
		t.Errorf("killed: %v", l)
	}
	e := r.has(t, "exec", func(e entry) bool { return e.Op == journal.OpExec && e.D.Path == ws+"/outer" })
	var chain []string
	for _, f := range r.rows[e.Seq+1:] {
		if f.Op != journal.OpInterp && f.Op != journal.OpDir {
			break
		}
		if f.Op == journal.OpInterp {
			chain = append(chain, filepath.Base(f.D.Path))
		}
	}
	if len(chain) != 3 || chain[0] != "inner" || !strings.HasPrefix(chain[2], "ld-") {
		t.Errorf("got chain %v, want inner, the shell, the loader", chain)
	}
}

func TestSandboxNetworkIsLoopbackOnly(t *testing.T) {
	needs(t, "python3")
	ws := folder(t, filepath.Join(base(t), "ws"))
	r := run(t, sandbox.Config{Workspace: ws, Command: []string{"python3", "-c", `
import socket
for a in ("192.0.2.1", "127.0.0.1"):
    s = socket.socket()
    try: s.connect((a, 9))
    except OSError as e: print(e.errno)
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen()
s = socket.create_connection(l.getsockname()); print("ok")
u = socket.socket(socket.AF_UNIX); u.bind("sock"); u.listen()
v = socket.socket(socket.AF_UNIX); v.connect("sock"); print("ok")
`}})
	if want := fmt.Sprintf("%d\n%d\nok\nok\n", unix.ENETUNREACH, unix.ECONNREFUSED); r.stdout != want {
		t.Errorf("got %q (%s), want %q", r.stdout, r.stderr, want)
	}
	r.has(t, "connect outside", func(e entry) bool {
		return e.Op == journal.OpConnect && e.D.Address == "inet 192.0.2.1:9" && e.Result == int32(unix.ENETUNREACH)
	})
	r.has(t, "socket by name", func(e entry) bool { return e.Op == journal.OpConnect && e.D.Path == ws+"/sock" })
	r.closed(t)
}

// No form of an address leads out: each attempt is refused, and a row with one spelling of
// the address. The control: a socket of the run itself is reached.
func TestRT56_AddressForms(t *testing.T) {
	needs(t, "python3")
	ws := folder(t, filepath.Join(base(t), "ws"))
	r := run(t, sandbox.Config{Workspace: ws, Command: []string{"python3", "-c", `
import socket
def t(family, kind, address):
    try:
        with socket.socket(family, kind) as s: s.connect(address); print("ok")
    except OSError as e: print(e.errno)
I, J, S, D = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
t(I, S, ("192.0.2.1", 443))
t(J, S, ("::ffff:192.0.2.1", 443))
t(J, S, ("::ffff:192.0.2.1", 444))
t(J, S, ("2001:db8::1", 443))
t(I, D, ("192.0.2.53", 53))
try:
    with socket.socket(I, D) as s: s.sendto(b"secret.example", ("192.0.2.53", 53)); print("ok")
except OSError as e: print(e.errno)
try: socket.getaddrinfo("secret-in-a-name.example", 443); print("resolved")
except OSError: print("no address")
l = socket.socket(socket.AF_UNIX); l.bind("sock"); l.listen()
t(socket.AF_UNIX, S, "sock")
`}})
	unreachable := fmt.Sprintln(int(unix.ENETUNREACH))
	if want := strings.Repeat(unreachable, 6) + "no address\nok\n"; r.stdout != want {
		t.Errorf("got %q (%s), want %q", r.stdout, r.stderr, want)
	}
	for address, want := range map[string]int{"inet 192.0.2.1:443": 2, "inet 192.0.2.1:444": 1, "inet6 [2001:db8::1]:443": 1} {
		got := r.find(func(e entry) bool {
			return e.Op == journal.OpConnect && e.D.Address == address && e.Result == int32(unix.ENETUNREACH)
		})
		if len(got) != want {
			t.Errorf("got %d refused rows of %s, want %d", len(got), address, want)
		}
	}
	r.has(t, "a name server asked", func(e entry) bool {
		return e.Op == journal.OpConnect && e.D.Address == "inet 192.0.2.53:53" && e.Result == int32(unix.ENETUNREACH)
	})
	reached := r.find(func(e entry) bool {
		return e.Op == journal.OpConnect && e.Result == 0 && e.D.Path == "" && e.D.Address != "unix"
	})
	for _, e := range reached {
		if a := e.D.Address; !strings.HasPrefix(a, "inet 127.") && !strings.HasPrefix(a, "inet6 [::1]") && !strings.HasPrefix(a, "unix @") && !strings.HasPrefix(a, "family ") {
			t.Errorf("got a connect to %s, want none", a)
		}
	}
	r.closed(t)
}

// More files written than descriptors allowed: the oldest are dated early.
func TestSandboxManyWrittenFiles(t *testing.T) {
	if os.Getenv("CLEANRUN_FEW_FILES") == "" {
		// A limit cannot be raised again: lower it in a process of its own.
		cmd := exec.Command("sh", "-c", "ulimit -S -n 300 && ulimit -H -n 300 && exec "+self(t, filepath.Join(base(t), "sandbox.test"))+" -test.run=^TestSandboxManyWrittenFiles$ -test.v")
		cmd.Env = append(os.Environ(), "CLEANRUN_FEW_FILES=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	ws := folder(t, filepath.Join(base(t), "ws"))
	const n = 600
	r := run(t, shell(ws, fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo $i > f$i; i=$((i+1)); done; echo again >> f1; exec 3> live; read x < live", n)))
	r.closed(t)
	wrote := r.find(func(e entry) bool { return e.Op == journal.OpWrote })
	if r.Code != 1 || len(wrote) != n+1 {
		t.Errorf("got %d wrote rows, code %d (%s), want %d", len(wrote), r.Code, r.stderr, n+1)
	}
}

// A sparse file can claim any size: it is not read, and the row says so.
func TestSandboxHugeFile(t *testing.T) {
	ws := folder(t, filepath.Join(base(t), "ws"))
	huge := write(t, filepath.Join(ws, "huge"), "x")
	if err := os.Truncate(huge, 65<<30); err != nil {
		t.Skipf("no sparse file of 65 GiB: %v", err)
	}
	r := run(t, shell(ws, "head -c 1 huge; echo y >> small; cat small"))
	if r.stdout != "xy\n" {
		t.Errorf("got %q (%s)", r.stdout, r.stderr)
	}
	e := r.has(t, "open row", func(e entry) bool { return e.Op == journal.OpOpen && e.D.Path == huge })
	if e.Flags&journal.FlagUnreadable == 0 || e.Dir != journal.DirNone || e.Result != 0 {
		t.Errorf("got %v, want it marked unreadable", e)
	}
	r.closed(t)
}

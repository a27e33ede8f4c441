package sandbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// template is the workspace of the workload tests.
var template = map[string]string{
	"hello.c":    "#include <stdio.h>\nint main(void) { puts(\"hello from C\"); return 4; }\n",
	"Makefile":   "hello: hello.c part.o\n\tgcc -o $@ hello.c\npart.o: hello.c\n\tgcc -c -o $@ hello.c\nclean:\n\trm -f hello part.o\n.PHONY: clean\n",
	"data/s.txt": "pear\napple\nfig\n", "data/lower/f": "f\n", "data/lower/deep/g": "g\n",
	"py/test_x.py": `import json, multiprocessing, os, subprocess, sys, tempfile, unittest

def square(n):
    return n * n

class T(unittest.TestCase):
    def test_subprocess(self):
        self.assertEqual(subprocess.check_output(["echo", "hi"]), b"hi\n")
        p = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(5)"])
        self.assertEqual(p.wait(), 5)
    def test_pool(self):
        with multiprocessing.get_context("fork").Pool(2) as p:
            self.assertEqual(p.map(square, range(5)), [0, 1, 4, 9, 16])
        with multiprocessing.get_context("spawn").Pool(1) as p:
            self.assertEqual(p.map(len, ["a", "bb"]), [1, 2])
    def test_files(self):
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "x"), "w") as f:
                json.dump([1], f)
            self.assertEqual(os.listdir(d), ["x"])
    def test_fails(self):
        self.assertEqual(1, 2)
`,
	"n.js": `const fs = require("fs"), cp = require("child_process"), os = require("os");
fs.writeFileSync("out.txt", "node\n"); console.log(fs.readFileSync("out.txt", "utf8").trim());
console.log(cp.execSync("echo child").toString().trim()); console.error("warned");
fs.promises.readdir("data").then(l => { console.log(l.sort().join()); process.exitCode = 3; });
`,
	"gomod/go.mod":        "module example.org/m\n\ngo 1.21\n",
	"gomod/main.go":       "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\n\t\"example.org/m/sub\"\n)\n\nfunc main() {\n\tfmt.Println(sub.Double(21))\n\tos.Exit(2)\n}\n",
	"gomod/sub/s.go":      "package sub\n\n// Double doubles.\nfunc Double(n int) int { return 2 * n }\n",
	"gomod/sub/s_test.go": "package sub\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestDouble(t *testing.T) {\n\tif Double(2) != 4 {\n\t\tt.Fatal()\n\t}\n\tif err := os.WriteFile(t.TempDir()+\"/x\", nil, 0o600); err != nil {\n\t\tt.Fatal(err)\n\t}\n}\n",
}

// workload is a script that must do the same inside as outside.
type workload struct {
	name   string
	needs  []string
	stdin  string
	script string
	// same removes what differs between two runs in any case (times, process ids).
	same *regexp.Regexp
}

var workloads = []workload{
	{name: "shell", needs: []string{"mktemp", "mkfifo", "diff"}, stdin: "from stdin\n", script: `
		cat; for i in 1 2 3; do echo $i; done | sort -r | tr '\n' ,; echo
		f=$(mktemp); echo tmp > $f; cat $f; rm $f
		mkfifo ff; (echo fifo > ff) & cat ff; wait; rm ff
		[ -w . ] && echo writable; sort data/s.txt -o data/s.txt; cat data/s.txt
		cp -a data d2; mv d2 d3; ls -R d3; rm -r d3; ln -s /etc/passwd lnk; head -1 lnk; readlink lnk
		mv data/lower moved; ls -R moved data; umask 027; mkdir m; touch m/f; stat -c '%a %n' m m/f
		cat missing; /no/such/program; sh -c 'kill -TERM $$'; echo $?; exit 9`},
	{name: "bash", needs: []string{"bash"}, script: `bash -c 'diff <(echo a) <(echo b); exec 3<>/dev/tcp/127.0.0.1/1' 2>/dev/null; echo $?
		bash -c 'coproc cat; echo x >&"${COPROC[1]}"; read -u "${COPROC[0]}" y; echo $y'; bash -c 'ulimit -c; trap "echo trapped" USR1; kill -USR1 $$; echo end'`},
	{name: "git", needs: []string{"git"}, script: `
		export GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a GIT_CONFIG_NOSYSTEM=1
		set -e; git init -q -b main r; cd r; cp ../hello.c .; git add .; git commit -q -m one; git log --oneline; cd ..
		git clone -q r r2; cd r2; echo x >> hello.c; git diff --stat; git commit -qam two; git push -q origin HEAD:b2; git -C ../r branch -a
		git gc -q; git fsck 2>&1; git status --short; git rebase -q HEAD~1; git worktree add -q ../r3; git log --oneline --all; git mv hello.c h.c; git status --short`},
	{name: "git-clone", needs: []string{"git"}, script: `set -e; cd cloned; git clone -q repo x; git -C x log --format=%s; git -C x fsck 2>&1; ls x; git clone -q x y; git -C y status --short; cat y/hello.c
		test -s x/.git/objects/info/packs || echo no list of packs; cp x/hello.c own; ln own other; stat -c %h own; echo more >> other; tail -1 own`},
	{name: "python", needs: []string{"python3"}, script: `cd py; python3 -m unittest -v test_x`, same: regexp.MustCompile(`in [0-9.]+s`)},
	{name: "python-misc", needs: []string{"python3"}, script: `python3 - <<'P'
import os, socket, threading, mmap, ctypes, shutil, sqlite3, zipfile, asyncio, pty, signal
a, b = socket.socketpair(); fd = os.open("hello.c", os.O_RDONLY); socket.send_fds(a, [b"x"], [fd])
print(os.pread(socket.recv_fds(b, 1, 1)[1][0], 8, 0))
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); c = socket.create_connection(s.getsockname()); s.accept()[0].send(b"tcp"); print(c.recv(3))
u = socket.socket(socket.AF_UNIX); u.bind("sock"); u.listen(); v = socket.socket(socket.AF_UNIX); v.connect("sock"); print("unix")
t = [threading.Thread(target=lambda: open("hello.c").read()) for _ in range(8)]; [x.start() for x in t]; [x.join() for x in t]
f = open("mm", "w+b"); f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); m[0:2] = b"mm"; m.close(); print(open("mm", "rb").read(2))
m = os.memfd_create("x"); os.write(m, b"memfd"); print(open("/proc/self/fd/%d" % m).read())
fd = os.open(".", os.O_TMPFILE | os.O_RDWR); os.write(fd, b"t"); os.link("/proc/self/fd/%d" % fd, "linked", src_dir_fd=fd); print(open("linked").read())
os.setxattr("hello.c", "user.k", b"v"); print(os.listxattr("hello.c")); fd = os.open("n.js", os.O_RDONLY); os.fchmod(fd, 0o640); os.utime(fd, (1, 2)); print(oct(os.stat("n.js").st_mode), os.stat("n.js").st_mtime)
print(os.readlink("/proc/self/exe") == os.path.realpath("/usr/bin/python3"), open("/proc/self/comm").read().strip(), os.path.exists("/proc/thread-self/status"))
os.mkdir("q"); os.chdir("q"); open("../up", "w").write("u"); print(open("/proc/self/cwd/../up").read()); os.chdir("..")
db = sqlite3.connect("db"); db.execute("create table t(a)"); db.execute("insert into t values(1)"); db.commit(); print(db.execute("select * from t").fetchall())
print(asyncio.run(asyncio.wait_for(asyncio.sleep(0, "async"), 1))); shutil.copytree("data", "copied"); shutil.rmtree("copied"); shutil.move("data", "elsewhere"); print(sorted(os.listdir("elsewhere")))
p, fd = pty.fork()
if p == 0: os.execlp("sh", "sh", "-c", "test -t 0 && echo tty; : < /dev/tty && echo ctty")
out = b""
try:
    while (d := os.read(fd, 100)): out += d
except OSError: pass
print(out, os.waitpid(p, 0)[1])
P`},
	{name: "gcc", needs: []string{"gcc"}, script: `gcc hello.c -o hello && ./hello; echo $?; gcc -O2 -pipe -S hello.c -o - | grep -c main; gcc nothing.c`},
	{name: "make", needs: []string{"make", "gcc"}, script: `make -j2 && ./hello; make; make clean; ls; make nothing`},
	{name: "tar", needs: []string{"tar", "gzip"}, script: `tar czf x.tgz gomod py; mkdir x; tar xzf x.tgz -C x && diff -r gomod x/gomod && tar tzf x.tgz | sort; tar cf - data | tar tf - | sort
		cp --reflink=auto x.tgz y.tgz; cmp x.tgz y.tgz && echo same; gzip -k hello.c; zcat hello.c.gz | wc -c; rm -rf x; tar xf missing.tar`},
	{name: "node", needs: []string{"node"}, script: `node n.js`},
	{name: "perl", needs: []string{"perl"}, script: `perl -MFile::Temp=tempfile -e 'my($h,$n)=tempfile(); print $h "x"; close $h; print -s $n, "\n"; unlink $n; $|=1; print ` + "`echo hi`" + `; open(F,"|-","cat") or die; print F "piped\n"; close F; system("exit 3"); print $?>>8,"\n"; exit 6'`},
	{name: "sqlite", needs: []string{"sqlite3"}, script: `sqlite3 db 'pragma journal_mode=wal; create table t(a); insert into t values(1),(2); select sum(a) from t;'; sqlite3 db 'pragma journal_mode=delete; select count(*) from t'; sqlite3 db .dump; ls db*; sqlite3 db 'select * from missing'`},
	{name: "find", needs: []string{"find", "xargs", "sed"}, script: `find . -type f -name '*.go' -print0 | sort -z | xargs -0 -n1 -P2 wc -l | sort; find data -exec sh -c 'echo $1' _ {} \; | sort; find . -name s.txt -delete; grep -r main . --include=*.go | sort | head -3
		touch -d 2001-01-01 hello.c; stat -c '%y %a' hello.c; chmod 600 hello.c; stat -c %a hello.c; install -m 700 hello.c h3; stat -c %a h3; dd if=/dev/zero of=z bs=1k count=3 2>/dev/null; truncate -s 10 z; wc -c < z
		sed -i s/test/TEST/ py/test_x.py; grep -c TEST py/test_x.py; tee q < hello.c | wc -l; split -l 1 hello.c sp; ls sp*; cp hello.c mine; ln mine hard; stat -c %h mine; timeout 0.2 sleep 5; echo $?; nohup echo a; setsid -w echo sid`},
	{name: "misc", script: `(sleep 0.1; echo bg) & wait; id -u; id -g; whoami >/dev/null 2>&1; nproc; cat /etc/hostname >/dev/null && echo eh; df . >/dev/null && echo df; test -c /dev/tty && echo devs; echo x > /dev/null; echo e > /dev/stderr; echo o > /dev/stdout; head -c 4 /dev/zero | od -An -tx1
		grep -c processor /proc/cpuinfo; flock lk echo fl; mkdir -m 1777 st && touch st/a && rm st/a && echo st; ps -o comm= -p $$; kill -0 1 2>/dev/null; cat /proc/self/comm; ls -l /proc/self/fd >/dev/null && echo fds; env | grep -c -i cleanrun`},
	{name: "go", needs: []string{"go"}, same: regexp.MustCompile(`[0-9.]+s$`), script: `
		export GOCACHE=$PWD/.gocache GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off; cd gomod
		go build -o ../gb . && ../gb; echo $?; go test ./... ; go vet ./... && go list ./...; go run . ; go build ./nothing`},
}

func TestWorkload(t *testing.T) {
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			needs(t, w.needs...)
			tmp := t.TempDir()
			ws, home := filepath.Join(tmp, "ws"), filepath.Join(tmp, "home")
			for p, content := range template {
				write(t, filepath.Join(ws, p), content)
			}
			if err := os.Mkdir(home, 0o755); err != nil {
				t.Fatal(err)
			}
			env := environment(home)
			if w.name == "go" {
				warmGo(t, ws, env)
			}
			if w.name == "git-clone" {
				packed(t, ws, env)
			}
			before := listing(t, ws)
			// Inside first: the workspace outside must be as it was for the second.
			in := run(t, sandbox.Config{
				Command: []string{"/bin/sh", "-c", w.script}, Workspace: ws, Env: env, Stdin: strings.NewReader(w.stdin)})
			if after := listing(t, ws); after != before {
				t.Errorf("the workspace outside changed:\n%s\nwas\n%s", after, before)
			}
			cmd := exec.Command("/bin/sh", "-c", w.script)
			cmd.Dir, cmd.Env, cmd.Stdin = ws, env, strings.NewReader(w.stdin)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			for _, c := range []struct{ what, in, out string }{{"stdout", in.stdout, out.String()}, {"stderr", in.stderr, errs.String()}} {
				if a, b := normal(w, c.in), normal(w, c.out); a != b {
					t.Errorf("%s\ninside  %q\noutside %q", c.what, a, b)
				}
			}
			if want := cmd.ProcessState.ExitCode(); in.Code != want {
				t.Errorf("exit code inside %d, outside %d", in.Code, want)
			}
			if out.Len()+errs.Len() == 0 {
				t.Error("the workload printed nothing outside: it tests nothing")
			}
			in.closed(t)
			want := journal.Completed
			if in.Code != 0 {
				want = journal.Failed
			}
			if in.Outcome != want {
				t.Errorf("outcome %v, want %v", in.Outcome, want)
			}
		})
	}
}

func normal(w workload, s string) string {
	if w.same == nil {
		return s
	}
	var lines []string
	for _, l := range strings.Split(s, "\n") {
		lines = append(lines, w.same.ReplaceAllString(l, "TIME"))
	}
	return strings.Join(lines, "\n")
}

// warm is a build cache that holds the standard library as go test needs it. It is
// made once; TestMain removes it.
var warm struct {
	once sync.Once
	dir  string
	err  error
}

// warmGo puts a build cache into ws/.gocache, so that what the tests compile inside and
// outside is their own code.
func warmGo(t *testing.T, ws string, env []string) {
	t.Helper()
	warm.once.Do(func() {
		if warm.dir, warm.err = os.MkdirTemp("", "cleanrun-warm-"); warm.err != nil {
			return
		}
		cmd := exec.Command("sh", "-c", `export GOCACHE=$PWD/.gocache GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off
			mkdir warm && cd warm && printf 'module warm\n\ngo 1.21\n' > go.mod && printf 'package main\nimport _ "fmt"\nimport _ "os"\nfunc main() {}\n' > m.go &&
			printf 'package main\nimport "testing"\nfunc TestX(t *testing.T) {}\n' > m_test.go && go test . && go vet .`)
		cmd.Dir, cmd.Env = warm.dir, env
		if out, err := cmd.CombinedOutput(); err != nil {
			warm.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	err := warm.err
	if err == nil {
		err = os.CopyFS(filepath.Join(ws, ".gocache"), os.DirFS(filepath.Join(warm.dir, ".gocache")))
	}
	if err != nil {
		t.Fatalf("warm the build cache: %v", err)
	}
}

// packed makes a repository in the workspace as it was before the run, with files
// that may be written and some that may not.
func packed(t *testing.T, ws string, env []string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a
		git init -q cloned/repo; cd cloned/repo; cp ../../hello.c .; git add .; git commit -qm one; git repack -adq; git update-server-info; git commit -q --allow-empty -m two`)
	cmd.Dir, cmd.Env = ws, env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make the repository: %v\n%s", err, out)
	}
}

// listing is names, modes, sizes and times of a tree, without the build cache.
func listing(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command("find", ".", "-path", "./.gocache", "-prune", "-o", "-printf", `%p %y %m %s %T@ %l\n`)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

//go:build unix

// Package trilliantest starts a real Trillian for tests: PostgreSQL, and the log
// server and log signer of the Trillian module, built from source (a minute or
// two the first time; the Go build cache keeps them). It uses loopback alone, and all
// of it ends with the test.
package trilliantest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/trillian"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// patience is for a machine on which everything else is tested at the same time.
const patience = 2 * time.Minute

// Servers is a running Trillian.
type Servers struct {
	Address string // HOST:PORT of the log server's gRPC

	dir      string // of the database
	bin      string // of the Trillian programs
	postgres string // folder of PostgreSQL's programs
	owner    *syscall.Credential
	database *process
	server   *process
	signer   *process
}

// Start starts everything. Where there is no PostgreSQL it skips the test and says so.
func Start(t testing.TB) *Servers {
	t.Helper()
	postgres := findPostgres()
	if postgres == "" {
		t.Skip("no PostgreSQL here (initdb, postgres): the tests of a log on Trillian are left out; `make deps` installs it")
	}
	if _, err := user.LookupId(strconv.Itoa(os.Getuid())); err != nil {
		t.Skipf("PostgreSQL runs only for a user that has a name, so the tests of a log on Trillian are left out: %v", err)
	}
	s := &Servers{postgres: postgres, bin: build(t)}
	s.makeDatabase(t)
	s.StartDatabase(t)
	t.Cleanup(func() { s.database.stop(syscall.SIGQUIT) })
	s.sql(t, "postgres", "CREATE DATABASE trillian")
	s.sql(t, "trillian", schema(t))
	s.StartTrillian(t)
	t.Cleanup(s.StopTrillian)
	return s
}

// findPostgres returns the folder of PostgreSQL's programs; Debian keeps them out of PATH.
func findPostgres() string {
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if p, err := exec.LookPath("initdb"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			all = append(all, filepath.Dir(p))
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		missing := false
		for _, name := range []string{"initdb", "postgres", "psql"} {
			if _, err := exec.LookPath(filepath.Join(all[i], name)); err != nil {
				missing = true
			}
		}
		if !missing {
			return all[i]
		}
	}
	return ""
}

// module is the folder of the nested module that names the servers.
func module() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(filepath.Dir(file)), "servers")
}

// build builds the servers once for all test binaries that want them at a time.
// Build tags leave out the databases that are not used here, as Trillian's own
// build files do.
func build(t testing.TB) string {
	t.Helper()
	bin := t.TempDir()
	if cache, err := os.UserCacheDir(); err == nil {
		if err := os.MkdirAll(filepath.Join(cache, "cleanrun-tests", "trillian"), 0o700); err == nil {
			bin = filepath.Join(cache, "cleanrun-tests", "trillian")
		}
	}
	lock, err := os.OpenFile(filepath.Join(bin, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	t.Logf("building trillian_log_server and trillian_log_signer (github.com/google/trillian) in %s", bin)
	Build(t, module(), "-tags", "postgresql k8s", "-ldflags=-s -w", "-o", bin+"/", "tool")
	t.Logf("built in %.0f s", time.Since(start).Seconds())
	return bin
}

// Build runs go build on a module of its own, without the repository's state. Its
// modules may have to be fetched first, so it is tried three times.
func Build(t testing.TB, dir string, args ...string) {
	t.Helper()
	for left := 2; ; left-- {
		cmd := exec.Command("go", append([]string{"build", "-C", dir, "-buildvcs=false"}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err == nil {
			return
		}
		if left == 0 {
			t.Fatalf("go build %v: %v\n%s", args, err, out)
		}
		t.Logf("go build: %v, again soon\n%s", err, out)
		time.Sleep(5 * time.Second)
	}
}

// schema is Trillian's own.
func schema(t testing.TB) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-C", module(), "-m", "-f", "{{.Dir}}", "github.com/google/trillian")
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "storage", "postgresql", "schema", "storage.sql"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// makeDatabase makes an empty cluster. PostgreSQL refuses to run as root, so it
// then gets another user, to whom the folder belongs.
func (s *Servers) makeDatabase(t testing.TB) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // short: it has a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.dir = dir
	if os.Getuid() == 0 {
		uid, gid := 65534, 65534
		if u, err := user.Lookup("postgres"); err == nil {
			uid, _ = strconv.Atoi(u.Uid)
			gid, _ = strconv.Atoi(u.Gid)
		}
		s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := s.command("initdb", "-D", s.data(), "-A", "trust", "-U", "trillian", "-E", "UTF8", "--locale=C", "-N").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
}

func (s *Servers) data() string { return filepath.Join(s.dir, "data") }

func (s *Servers) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.postgres, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "HOME=" + s.dir, "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	return cmd
}

// psql is a command that reads statements.
func (s *Servers) psql(database, statements string) *exec.Cmd {
	cmd := s.command("psql", "-q", "-h", s.dir, "-U", "trillian", "-d", database, "-v", "ON_ERROR_STOP=1")
	cmd.Stdin = strings.NewReader(statements)
	return cmd
}

func (s *Servers) sql(t testing.TB, database, statements string) {
	t.Helper()
	if out, err := s.psql(database, statements).CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
}

// StartDatabase starts PostgreSQL, which listens on a socket in its folder alone.
func (s *Servers) StartDatabase(t testing.TB) {
	t.Helper()
	cmd := s.command("postgres", "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=200", "-c", "unix_socket_permissions=0777")
	s.database = start(t, "postgres", cmd)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		out, err := s.psql("postgres", "SELECT 1").CombinedOutput()
		if err == nil {
			return
		}
		if s.database.ended() || time.Now().After(end) {
			t.Fatalf("PostgreSQL does not answer: %v\n%s\n%s", err, out, s.database.output())
		}
	}
}

// StopDatabase ends PostgreSQL at once, as a crash would: what it acknowledged is in its log on the disk.
func (s *Servers) StopDatabase(t testing.TB) {
	t.Helper()
	s.database.stop(syscall.SIGQUIT)
}

// SaveDatabase copies the files of a database that is stopped.
func (s *Servers) SaveDatabase(t testing.TB, name string) {
	t.Helper()
	s.copy(t, s.data(), filepath.Join(s.dir, "saved-"+name))
}

// RestoreDatabase puts the files of SaveDatabase back. The database must be stopped.
func (s *Servers) RestoreDatabase(t testing.TB, name string) {
	t.Helper()
	if err := os.RemoveAll(s.data()); err != nil {
		t.Fatal(err)
	}
	s.copy(t, filepath.Join(s.dir, "saved-"+name), s.data())
}

func (s *Servers) copy(t testing.TB, from, to string) {
	t.Helper()
	cmd := exec.Command("cp", "-a", from, to)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
}

// StartTrillian starts the log server and the log signer, which take the first port that is free.
func (s *Servers) StartTrillian(t testing.TB) {
	t.Helper()
	uri := "postgresql://trillian@/trillian?sslmode=disable&host=" + s.dir
	common := []string{"--storage_system=postgresql", "--quota_system=postgresql", "--postgresql_uri=" + uri, "--http_endpoint=", "--logtostderr"}
	s.server, s.Address = s.serve(t, "trillian_log_server", common)
	s.signer, _ = s.serve(t, "trillian_log_signer", append(common, "--force_master", "--sequencer_interval=50ms", "--batch_size=500"))
}

// StopTrillian kills the log server and the log signer.
func (s *Servers) StopTrillian() {
	s.server.stop(syscall.SIGKILL)
	s.signer.stop(syscall.SIGKILL)
}

// serve starts a program that wants a port. Somebody may take the port before it does: then another.
func (s *Servers) serve(t testing.TB, name string, args []string) (*process, string) {
	t.Helper()
	for range 10 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		cmd := exec.Command(filepath.Join(s.bin, name), append(args, "--rpc_endpoint="+address)...)
		cmd.Dir = s.dir
		p := start(t, name, cmd)
		err = answers(p, address)
		if err == nil {
			return p, address
		}
		p.stop(syscall.SIGKILL)
		if !strings.Contains(p.output(), "address already in use") {
			t.Fatalf("%s does not answer: %v\n%s", name, err, p.output())
		}
	}
	t.Fatalf("%s found no port", name)
	return nil, ""
}

// answers waits until something speaks gRPC there.
func answers(p *process, address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		ctx, done := context.WithTimeout(context.Background(), patience)
		_, err := trillian.NewTrillianAdminClient(conn).ListTrees(ctx, &trillian.ListTreesRequest{})
		done()
		// The signer has no such service: that it says so is enough.
		if err == nil || status.Code(err) == codes.Unimplemented {
			return nil
		}
		if p.ended() {
			return errors.New("it ended")
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// process is a program that runs until it is stopped.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	out  *tail
}

func start(t testing.TB, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{}), out: &tail{}}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go func() {
		cmd.Wait()
		close(p.done)
	}()
	return p
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the process and waits for it.
func (p *process) stop(sig os.Signal) {
	p.cmd.Process.Signal(sig)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.cmd.Process.Kill()
		<-p.done
	}
}

func (p *process) output() string { return p.out.String() }

// tail keeps the end of what a program says.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf.Len() > 1<<20 {
		t.buf.Reset()
	}
	return t.buf.Write(b)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf.Bytes()
	return fmt.Sprintf("%s", b[max(0, len(b)-8192):])
}

package stdio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

const patience = time.Minute

// session is one program under a relay whose outer streams are pipes.
type session struct {
	t     *testing.T
	in    *os.File // what the caller types
	out   [3]*os.File
	outer []*os.File
	relay *Relay
	pid   int

	mu   sync.Mutex
	rows [3]bytes.Buffer
}

func (s *session) record(stream int, chunk []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[stream].Write(chunk)
	return nil
}

func (s *session) recorded(stream int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[stream].String()
}

// run starts sh -c script. A nil record keeps the chunks in the session.
func run(t *testing.T, script string, record Record) *session {
	t.Helper()
	s := &session{t: t}
	r0, w0, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in = w0
	fds := [3]int{int(r0.Fd())}
	s.outer = append(s.outer, r0)
	for _, i := range []int{Stdout, Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		s.out[i], fds[i] = r, int(w.Fd())
		s.outer = append(s.outer, w)
	}
	s.start(fds, script, record)
	return s
}

func (s *session) start(fds [3]int, script string, record Record) {
	s.t.Helper()
	if record == nil {
		record = s.record
	}
	var err error
	if s.relay, err = New(fds, "/dev/ptmx", record); err != nil {
		s.t.Fatal(err)
	}
	prog, terminal := s.relay.Program()
	sys := &syscall.SysProcAttr{Setsid: true, Setctty: terminal >= 0, Ctty: max(terminal, 0)}
	s.pid, err = syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{uintptr(prog[0]), uintptr(prog[1]), uintptr(prog[2])}, Sys: sys})
	if err != nil {
		s.t.Fatal(err)
	}
	s.relay.Start()
	s.t.Cleanup(func() { syscall.Kill(-s.pid, syscall.SIGKILL) })
}

// wait is the end of the program's first process.
func (s *session) wait() syscall.WaitStatus {
	s.t.Helper()
	var ws syscall.WaitStatus
	done := make(chan error, 1)
	go func() { _, err := syscall.Wait4(s.pid, &ws, 0, nil); done <- err }()
	select {
	case err := <-done:
		if err != nil {
			s.t.Fatal(err)
		}
	case <-time.After(patience):
		s.t.Fatal("the program does not end")
	}
	return ws
}

func (s *session) finish() error {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.relay.Finish() }()
	select {
	case err := <-done:
		for _, f := range s.outer {
			f.Close()
		}
		return err
	case <-time.After(patience):
		s.t.Fatal("Finish hangs")
		return nil
	}
}

// drain reads an outer stream to its end in the background.
func (s *session) drain(stream int, slow time.Duration) func() string {
	ch := make(chan string, 1)
	go func() {
		var b bytes.Buffer
		buf := make([]byte, 1<<16)
		for {
			n, err := s.out[stream].Read(buf)
			b.Write(buf[:n])
			if err != nil {
				ch <- b.String()
				return
			}
			time.Sleep(slow)
		}
	}()
	return func() string { return <-ch }
}

func TestStreamsPassAndAreRecorded(t *testing.T) {
	s := run(t, "cat; echo problem >&2; exit 7", nil)
	out, errs := s.drain(Stdout, 0), s.drain(Stderr, 0)
	io.WriteString(s.in, "line one\n")
	io.WriteString(s.in, "line two\n")
	s.in.Close()
	if ws := s.wait(); ws.ExitStatus() != 7 {
		t.Errorf("exit %d, want 7", ws.ExitStatus())
	}
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, got, want string }{
		{"stdout", out(), "line one\nline two\n"},
		{"stderr", errs(), "problem\n"},
		{"recorded stdin", s.recorded(Stdin), "line one\nline two\n"},
		{"recorded stdout", s.recorded(Stdout), "line one\nline two\n"},
		{"recorded stderr", s.recorded(Stderr), "problem\n"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, c.got, c.want)
		}
	}
}

// Nothing leaves before the recorder has seen it, in both directions.
func TestRecordComesFirst(t *testing.T) {
	seen, goOn := make(chan string), make(chan bool)
	s := run(t, "read x; echo program got $x", func(stream int, chunk []byte) error {
		seen <- string(chunk)
		<-goOn
		return nil
	})
	out := s.drain(Stdout, 0)
	passed := make(chan string, 1)
	go func() { passed <- out() }()
	io.WriteString(s.in, "word\n")
	if got := <-seen; got != "word\n" {
		t.Errorf("first chunk %q", got)
	}
	select {
	case got := <-seen:
		t.Errorf("the program answered %q before its input was recorded", got)
	case <-time.After(200 * time.Millisecond):
	}
	goOn <- true
	if got := <-seen; got != "program got word\n" {
		t.Errorf("second chunk %q", got)
	}
	s.wait()
	select {
	case got := <-passed:
		t.Errorf("%q went out before it was recorded", got)
	case <-time.After(100 * time.Millisecond):
	}
	goOn <- true
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	if got := <-passed; got != "program got word\n" {
		t.Errorf("stdout %q", got)
	}
}

func TestNothingIsLostAtExit(t *testing.T) {
	const size = 3_000_000
	s := run(t, "head -c 3000000 /dev/zero", nil)
	out := s.drain(Stdout, 5*time.Millisecond) // a slow reader
	s.wait()
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	if n := len(out()); n != size {
		t.Errorf("%d bytes arrived, want %d", n, size)
	}
	if n := len(s.recorded(Stdout)); n != size {
		t.Errorf("%d bytes recorded, want %d", n, size)
	}
}

func TestStdinStaysOpenAfterExit(t *testing.T) {
	s := run(t, "echo done", nil) // in is never closed
	out := s.drain(Stdout, 0)
	s.wait()
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	if got := out(); got != "done\n" {
		t.Errorf("stdout %q", got)
	}
}

func TestProgramClosesStdin(t *testing.T) {
	s := run(t, "exec <&-; sleep 0.2; echo done", nil)
	out := s.drain(Stdout, 0)
	stop := make(chan struct{})
	go func() { // more than all pipes hold
		defer close(stop)
		s.in.Write(make([]byte, 1<<20))
	}()
	s.wait()
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	if got := out(); got != "done\n" {
		t.Errorf("stdout %q", got)
	}
	<-stop // the writer was told that nobody reads
}

func TestReaderGoesAway(t *testing.T) {
	s := run(t, "exec yes", nil)
	buf := make([]byte, 10)
	io.ReadFull(s.out[Stdout], buf)
	s.out[Stdout].Close()
	if ws := s.wait(); !ws.Signaled() || ws.Signal() != syscall.SIGPIPE {
		t.Errorf("yes ended with %v, want death by SIGPIPE, as without a relay", ws)
	}
	if err := s.finish(); err != nil {
		t.Errorf("a reader that went away is no fault: %v", err)
	}
}

func TestChildKeepsStdoutOpen(t *testing.T) {
	s := run(t, "(sleep 0.4; echo late) & echo early", nil)
	out := s.drain(Stdout, 0)
	s.wait()
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	if got := out(); got != "early\nlate\n" {
		t.Errorf("stdout %q, want both lines", got)
	}
}

func TestAbortEnds(t *testing.T) {
	s := run(t, "sleep 1000 & echo x", nil)
	s.wait()
	time.AfterFunc(300*time.Millisecond, s.relay.Abort)
	if err := s.finish(); err != nil { // hangs without Abort
		t.Fatal(err)
	}
}

func TestRecordErrorStopsTheStream(t *testing.T) {
	full := errors.New("no space for the journal")
	s := run(t, "exec yes", func(stream int, chunk []byte) error { return full })
	out := s.drain(Stdout, 0)
	s.wait() // yes dies since nobody reads
	if err := s.finish(); !errors.Is(err, full) {
		t.Errorf("Finish: %v, want the recorder's error", err)
	}
	if got := out(); got != "" {
		t.Errorf("%d bytes passed that were not recorded", len(got))
	}
}

func TestNullStdinIsPassedAsItIs(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, outer: []*os.File{w}}
	s.out[Stdout] = r
	s.start([3]int{int(null.Fd()), int(w.Fd()), int(w.Fd())}, "test -c /dev/stdin && echo device; test -p /dev/stdout && echo pipe", nil)
	out := s.drain(Stdout, 0)
	s.wait()
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	if got := out(); got != "device\npipe\n" {
		t.Errorf("stdout %q", got)
	}
}

func TestChunksAreBounded(t *testing.T) {
	var most int
	var mu sync.Mutex
	s := run(t, "head -c 1000000 /dev/zero", func(stream int, c []byte) error {
		mu.Lock()
		defer mu.Unlock()
		most = max(most, len(c))
		return nil
	})
	out := s.drain(Stdout, 0)
	s.wait()
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	if n := len(out()); n != 1_000_000 || most > chunk || most == 0 {
		t.Errorf("%d bytes in chunks of up to %d, want at most %d", n, most, chunk)
	}
}

package stdio

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// window is an outer terminal: what a user types and sees.
type window struct {
	t             *testing.T
	master, slave *os.File
	mu            sync.Mutex
	shown         bytes.Buffer
}

func newWindow(t *testing.T) *window {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	s, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Fatal(errno)
	}
	w := &window{t: t, master: os.NewFile(uintptr(fd), "window"), slave: os.NewFile(s, "terminal")}
	w.size(30, 100)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := w.master.Read(buf)
			w.mu.Lock()
			w.shown.Write(buf[:n])
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { w.master.Close(); w.slave.Close() })
	return w
}

func (w *window) size(rows, cols uint16) {
	if err := unix.IoctlSetWinsize(int(w.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *window) typed(s string) {
	if _, err := w.master.WriteString(s); err != nil {
		w.t.Fatal(err)
	}
}

// shows waits until the text is on the screen.
func (w *window) shows(text string) {
	w.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		found := strings.Contains(w.shown.String(), text)
		w.mu.Unlock()
		if found {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.Fatalf("the terminal does not show %q; it shows %q", text, w.shown.String())
}

func (w *window) mode() unix.Termios {
	t, err := unix.IoctlGetTermios(int(w.slave.Fd()), unix.TCGETS)
	if err != nil {
		w.t.Fatal(err)
	}
	return *t
}

func (w *window) run(script string) *session {
	s := &session{t: w.t}
	fd := int(w.slave.Fd())
	s.start([3]int{fd, fd, fd}, script, nil)
	return s
}

func TestTerminalInside(t *testing.T) {
	w := newWindow(t)
	before := w.mode()
	s := w.run(`test -t 0 && test -t 1 && test -t 2 && stty size; exec 3<>/dev/tty && echo has tty; read x; echo "got $x"`)
	w.shows("30 100\r\n")
	w.shows("has tty\r\n")
	if w.mode() == before {
		t.Error("the outer terminal is not in raw mode while the program runs")
	}
	w.typed("hello\r")
	w.shows("hello\r\n") // the inner line discipline's echo
	w.shows("got hello\r\n")
	s.wait()
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	if w.mode() != before {
		t.Error("Finish did not restore the outer terminal")
	}
	if got := s.recorded(Stdin); got != "hello\r" {
		t.Errorf("recorded input %q", got)
	}
	if got := s.recorded(Stdout); !strings.Contains(got, "got hello\r\n") {
		t.Errorf("recorded output %q", got)
	}
}

func TestControlCharacters(t *testing.T) {
	w := newWindow(t)
	s := w.run("echo ready; cat; echo after; exec sleep 1000")
	w.shows("ready")
	w.typed("line\r")
	w.shows("line\r\nline\r\n")
	w.typed("\x04") // end of file for cat
	w.shows("after")
	w.typed("\x03")
	if ws := s.wait(); !ws.Signaled() || ws.Signal() != syscall.SIGINT {
		t.Errorf("after Ctrl-C: %v, want death by SIGINT", ws)
	}
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
}

func TestWindowSizeChanges(t *testing.T) {
	w := newWindow(t)
	s := w.run("trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done")
	w.shows("ready")
	w.size(11, 22)
	s.relay.Resize()
	w.shows("11 22")
	if ws := s.wait(); ws.ExitStatus() != 3 {
		t.Errorf("program ended with %v", ws)
	}
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
}

func TestWindowIsClosed(t *testing.T) {
	w := newWindow(t)
	s := w.run("echo ready; exec yes")
	w.shows("ready")
	w.master.Close()
	// The kernel makes writes fail first, then signals: yes may end by either.
	if ws := s.wait(); ws.Signal() != syscall.SIGHUP && ws.ExitStatus() != 1 {
		t.Errorf("program ended with %v, want death by SIGHUP or a failed write", ws)
	}
	s.finish() // an error is right here; it must return
}

// Output goes to a pipe, as in `cleanrun run -- cmd | less`: the outer terminal
// belongs to the other program too and keeps its mode.
func TestOnlyStdinIsATerminal(t *testing.T) {
	w := newWindow(t)
	before := w.mode()
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, outer: []*os.File{wr}}
	s.out[Stdout] = r
	out := s.drain(Stdout, 0)
	s.start([3]int{int(w.slave.Fd()), int(wr.Fd()), int(wr.Fd())},
		`test -t 0 && echo in; test -t 1 || echo pipe; read x; echo "got $x"; exec sleep 1000`, nil)
	if w.mode() != before {
		t.Error("the outer terminal's mode was changed")
	}
	w.typed("word\r")
	for end := time.Now().Add(patience); !strings.Contains(s.recorded(Stdout), "got word") && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // let sh become sleep
	if !s.relay.Interrupt() {
		t.Error("Interrupt: no terminal")
	}
	if ws := s.wait(); !ws.Signaled() || ws.Signal() != syscall.SIGINT {
		t.Errorf("after Interrupt: %v, want death by SIGINT", ws)
	}
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
	if got := out(); got != "in\npipe\ngot word\n" {
		t.Errorf("stdout %q", got)
	}
}

func TestOnlyStdoutIsATerminal(t *testing.T) {
	w := newWindow(t)
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, in: wr, outer: []*os.File{r}}
	fd := int(w.slave.Fd())
	s.start([3]int{int(r.Fd()), fd, fd}, `cat; test -t 1 && echo screen; read x </dev/tty; echo "key $x"`, nil)
	wr.WriteString("piped\n")
	wr.Close()
	w.shows("piped\r\nscreen\r\n")
	w.typed("k\r")
	w.shows("key k")
	s.wait()
	if err := s.finish(); err != nil {
		t.Fatal(err)
	}
}

func TestSaveTerminals(t *testing.T) {
	w := newWindow(t)
	before := w.mode()
	restore := SaveTerminals(int(w.slave.Fd()))
	if _, err := makeRaw(int(w.slave.Fd())); err != nil {
		t.Fatal(err)
	}
	if w.mode() == before {
		t.Fatal("positive control: makeRaw changed nothing")
	}
	restore()
	if w.mode() != before {
		t.Error("the mode was not restored")
	}
}

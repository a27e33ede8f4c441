package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stageModel is the name of the process that keeps the command of -model-stdin:
// it takes in whatever that leaves behind, and ends it all when the attempt's
// process is gone, however that ended.
const stageModel = "cleanrun: model"

const lifeFD = 3 // of the keeper: a pipe whose other end the attempt's process holds

// keepModel runs the command and returns its exit code, 0 if it was stopped.
func keepModel(command []string) int {
	unix.CloseOnExec(lifeFD)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil || len(command) == 0 {
		fmt.Fprintln(os.Stderr, "subreaper:", err)
		return 126
	}
	runtime.LockOSThread() // the command dies with the thread that started it
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 127
	}
	os.Stdin.Close()
	os.Stdout.Close()
	released := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(lifeFD, "life"))
		close(released)
	}()
	ended := make(chan int, 1)
	go func() {
		_ = cmd.Wait() // the state says it
		code := cmd.ProcessState.ExitCode()
		if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
			code = 128 + int(s.Signal())
		}
		ended <- code
	}()
	code := 0
	select {
	case <-released:
	case code = <-ended:
	}
	for kids := descendants(os.Getpid()); len(kids) > 0; kids = descendants(os.Getpid()) {
		for _, p := range kids {
			_ = unix.Kill(p, unix.SIGKILL) // gone already, if this fails
		}
		for pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid > 0 && err == nil; pid, err = unix.Wait4(-1, nil, unix.WNOHANG, nil) {
		}
		time.Sleep(time.Millisecond)
	}
	return code
}

// descendants of a process, itself not among them.
func descendants(pid int) (out []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for _, w := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(w); err == nil {
				out = append(append(out, n), descendants(n)...)
			}
		}
	}
	return out
}

// startModel starts the command whose output is the agent's stdin and that gets
// the agent's stdout. stop ends it and says how it ended if it failed by itself.
// Without a command the agent reads nothing.
func startModel(command []string) (in io.Reader, out io.Writer, stop func() error, err error) {
	if len(command) == 0 {
		return nil, io.Discard, func() error { return nil }, nil
	}
	var pipes [3][2]*os.File // the model's stdin, its stdout, life
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			return nil, nil, nil, err
		}
	}
	said := &tail{most: 2 << 10}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{stageModel}, command...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipes[0][0], pipes[1][1], said
	cmd.ExtraFiles = []*os.File{pipes[2][0]}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Start()
	for _, f := range []*os.File{pipes[0][0], pipes[1][1], pipes[2][0]} {
		f.Close()
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("-model-stdin: %w", err)
	}
	feed := newFeeder(pipes[0][1])
	return pipes[1][0], feed, func() error {
		feed.stop()
		pipes[2][1].Close()
		err := cmd.Wait()
		pipes[1][0].Close()
		if err != nil {
			return fmt.Errorf("the command of -model-stdin failed: %w: %s", err, said)
		}
		if feed.cut {
			return errors.New("the command of -model-stdin did not read what the agent printed: it was cut")
		}
		return nil
	}, nil
}

// A feeder passes on what the agent prints without ever letting the agent wait: a
// command that only talks must not stop an agent that talks first.
type feeder struct {
	mu   sync.Mutex
	more *sync.Cond
	buf  []byte
	over bool // nobody reads any more, or there is nothing more to come
	cut  bool // more than maxFeed waited
	to   *os.File
}

const maxFeed = 64 << 20

func newFeeder(to *os.File) *feeder {
	f := &feeder{to: to}
	f.more = sync.NewCond(&f.mu)
	go f.run()
	return f
}

func (f *feeder) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		if len(f.buf)+len(b) > maxFeed {
			f.over, f.cut = true, true
		} else {
			f.buf = append(f.buf, b...)
		}
		f.more.Signal()
	}
	return len(b), nil
}

func (f *feeder) run() {
	for {
		f.mu.Lock()
		for len(f.buf) == 0 && !f.over {
			f.more.Wait()
		}
		b := f.buf
		f.buf = nil
		over := f.over
		f.mu.Unlock()
		if over && len(b) == 0 {
			return
		}
		if _, err := f.to.Write(b); err != nil { // a command that only talks closes it
			f.mu.Lock()
			f.over, f.buf = true, nil
			f.mu.Unlock()
		}
	}
}

// stop ends the feed at once: the agent is gone.
func (f *feeder) stop() {
	f.mu.Lock()
	f.over, f.buf = true, nil
	f.more.Signal()
	f.mu.Unlock()
	f.to.Close()
}

// A tail keeps the last bytes that are written to it.
type tail struct {
	mu   sync.Mutex
	most int
	b    []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-t.most):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}

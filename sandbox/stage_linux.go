package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"
)

// Names that the re-executed program finds in os.Args[0]. An environment
// variable would reach, or come from, the program that runs inside.
const (
	stageBroker = "cleanrun: broker"
	stageInit   = "cleanrun: init"
	stageShim   = "cleanrun: shim"
)

// Descriptors of the stages. Broker: control, config. Init and shim: link to
// the broker, config.
const (
	linkFD   = 3
	configFD = 4
)

// Stage must be called first in main (or TestMain). If this process is one of
// the recorder's own stages, it does that stage's work and does not return.
func Stage() {
	if len(os.Args) == 0 {
		return
	}
	var run func(*stage) error
	switch os.Args[0] {
	case stageBroker:
		run = broker
	case stageInit:
		run = initProcess
	case stageShim:
		run = shim
	case stageProbe:
		if len(os.Args) == 2 {
			runtime.LockOSThread()
			tryProbe(os.Args[1])
		}
		return
	default:
		return
	}
	// The main thread forks the next stage, which dies with this thread, and
	// traces: it is never given back.
	runtime.LockOSThread()
	unix.CloseOnExec(linkFD)
	unix.CloseOnExec(configFD)
	s := new(stage)
	config := os.NewFile(configFD, "config")
	err := json.NewDecoder(io.NewSectionReader(config, 0, 1<<30)).Decode(s)
	if err != nil {
		fmt.Fprintf(os.Stderr, "cleanrun: error: %q is a name of the recorder's own processes\n", os.Args[0])
		os.Exit(OwnFailure)
	}
	err = run(s)
	runtime.KeepAlive(config) // collected, it would be closed, and later phases read it
	if err != nil {
		report(err)
		os.Exit(OwnFailure)
	}
	os.Exit(0)
}

// report tells the next process outwards why this stage failed.
func report(err error) {
	m := message{Error: err.Error()}
	var u *Unavailable
	if errors.As(err, &u) {
		m.What, m.Hint, m.Error = u.What, u.Hint, u.Err.Error()
	}
	var c *NotExecuted
	if errors.As(err, &c) {
		m.What, m.Error = whatCommand, c.Err.Error()
	}
	send(m)
}

func parseMessage(b []byte) (message, error) {
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("a stage said %q", b)
	}
	return m, nil
}

// cutWord returns what follows a word in a packet.
func cutWord(b []byte, word string) ([]byte, bool) { return bytes.CutPrefix(b, []byte(word)) }

func send(m message) {
	b, err := json.Marshal(m)
	if err != nil {
		return // no message has a value that cannot be encoded
	}
	_, _ = unix.Write(linkFD, b) // nobody is left to tell
}

// catchSignals keeps the program, and a terminal, from ending this process. It
// catches and does not ignore: an ignored signal would be inherited.
func catchSignals() <-chan os.Signal {
	ch := make(chan os.Signal, 64)
	signal.Notify(ch)
	return ch
}

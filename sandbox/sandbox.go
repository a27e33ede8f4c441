// Package sandbox runs a command in namespaces and records what it opens,
// executes, writes and renames in a journal.
//
// Limits first. The package needs Linux on amd64 or arm64; elsewhere Run returns an
// *Unavailable error. Where user namespaces cannot be had, a second backend does
// without: it keeps less from the run (PlainBackend). It does not see: metadata that is
// only read (stat, readlink, directory listings), which bytes of an opened file
// were read, intermediate contents of a file between two opens, covert channels,
// and cheap refused system calls (Blind lists them by id). There is no network
// but loopback. Background processes are killed when the command ends.
//
// Four processes make a run: the launcher L (the caller), the broker S (member
// of the sandbox's user and mount namespaces, outside its process namespace),
// pid 1 of the sandbox, and the program. S opens every file itself and hands the
// descriptor over (seccomp user notification), so what is recorded is what was
// opened. There is no helper binary: S and pid 1 are the calling program again,
// so its main must call Stage first.
//
//	func main() {
//		sandbox.Stage()
//		...
//		res, err := sandbox.Run(ctx, sandbox.Config{...})
//	}
//
// The design and its reasons are in spec/recorder.md.
package sandbox

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// Version of the recorder, bound in every start row.
const Version = "cleanrun/recorder/v1"

// Backend and PlainBackend name the two ways of watching in the start row. PlainBackend
// needs no namespaces: it works on a copy of the workspace and keeps the run from
// the host by its answers (spec/recorder.md, "Without namespaces").
const (
	Backend      = "namespaces+seccomp-notify"
	PlainBackend = "plain+seccomp-notify"
)

// OwnFailure is the exit code that a caller reports when Run returns an error.
const OwnFailure = 125

// ControlPath is where a run finds its control file.
const ControlPath = "/cleanrun/control.txt"

// PromptPath is where a run finds its prompt as a file, if Config.Prompt is set.
// Without namespaces it is in the run folder; an argument of Config.Command that
// names PromptPath names that place then.
const PromptPath = "/cleanrun/prompt.md"

// Default places of hidden tests and of reward files.
const (
	TestsPath  = "/cleanrun/tests"
	RewardPath = "/cleanrun/reward"
)

// Variables that the grader finds the places in.
const (
	TestsVariable  = "CLEANRUN_TESTS"
	RewardVariable = "CLEANRUN_REWARD_DIR"
)

// Config of one run.
type Config struct {
	Command   []string // program and arguments; the program is looked up on PATH of Env, inside the sandbox
	Workspace string   // shown at the same path, over an overlay: outside it stays unchanged
	RunDir    string   // exists, 0700, not inside the workspace; gets journal, detail, secret, objects, upper
	Env       []string // environment of the program, complete
	Observe   bool     // show the whole host read-only and record what is out of scope
	ReadOnly  bool     // the workspace may be read but not changed

	// Start is the start row's template: benchmark, task, trial, attempt,
	// commitment, seal, baseline, channels, agent, model. Run fills Version,
	// Roots, Workspace, Observe, Recorder, Backend and Blind, and draws Run if
	// it is zero.
	Start       journal.Start
	ControlText string       // content of ControlPath, opened before the command; "" for none
	Prompt      string       // content of PromptPath; "" for none
	Grants      []scope.Root // Path and Mode of what the task allows besides the workspace
	Plant       *Plant       // a file that is made for this run alone, nil for none
	ToolDirs    []string     // more directories to show read-only (GOROOT, GOMODCACHE)
	HiddenHints []string     // outside paths: absent inside but present outside below one of them counts as hidden

	// Setup and Grade must equal those of Start.Phases, if that is set; without it
	// Run makes Start.Phases of them with the reward rule exit-code. Neither reads
	// Stdin. Tests is an outside folder that is shown at Start.Phases.Tests,
	// read-only, when grading starts, and is not to be found inside before.
	Setup, Grade []string
	Tests        string
	// Timeouts of the agent, the setup and the grading; 0 is none. When one is
	// over, all processes of its phase are killed.
	Timeout, SetupTimeout, GradeTimeout time.Duration
	Limits                              Limits
	Secrets                             []Secret
	StoreMax                            uint64 // bytes of content that are stored; 0 is no limit
	// RemoveKeys replaces what has the shape of a well-known key, RemovePatterns the
	// matches of regular expressions, as Secrets are replaced (internal/redact).
	RemoveKeys     bool
	RemovePatterns []string
	// ApplyFirst leaves what the run changed as it is: the caller applies it and then
	// calls Scrub.
	ApplyFirst bool
	// Recipients (age1...) encrypt what RunDir keeps; empty keeps it in clear.
	Recipients []string

	// Backend forces Backend or PlainBackend. "" tries the whole set-up of the first
	// and takes the second only if that fails. Chosen, if not nil, is told before the
	// command starts; why is nil unless the first one failed.
	Backend string
	Chosen  func(backend string, why error)

	// Register, if not nil, is asked once, with the complete start row, when the
	// set-up has succeeded and before row 0 is written and any program starts. It sets
	// Registration and Freshness, or leaves both nil; nothing else that it changes
	// counts. After an error nothing runs, and Run returns a *NotRegistered. Its context
	// ends when the run is stopped meanwhile. Once it was asked, no second backend is
	// tried: that one would have another start row.
	Register func(context.Context, *journal.Start) error
	// Secret of a run that was registered before and never started, so that the start
	// row can be the same; nil draws one.
	Secret *journal.Secret
	// Head, if not nil, is told a head whose rows are on the disk, whenever there are
	// 1,000 new rows, or new rows and 30 seconds, since the last. It must not wait.
	Head func(journal.Head)

	Stdin          io.Reader // of the agent; nil is /dev/null; an *os.File is passed as it is
	Stdout, Stderr io.Writer // of all phases; nil discards
	Progress       func(Progress)
}

// A Plant is a file that is shown at a granted path, read-only, in this run alone, with
// a marker that nobody outside knows (spec/expect.md). Outside nothing need be at the
// path, and nothing there changes. It needs namespaces, and a run with a task.
type Plant struct {
	Path     string // one of Config.Grants, of mode read-one
	Template string // its text; expect.Placeholder stands in it once, where the marker goes
}

// Limits of what a run may use; 0 is none. One that cannot be set is a *Refused.
type Limits struct {
	Memory    uint64 // bytes: of the whole run with a cgroup, else of private memory of each process
	Disk      uint64 // bytes that the run may add to its workspace and private places
	Processes uint32 // processes and threads at one time
}

// A Secret is a value that is replaced wherever it appears before anything is
// stored.
type Secret struct {
	Name  string
	Value []byte
}

// Progress of a run that is under way.
type Progress struct {
	Rows  uint64 // rows written
	Phase journal.Phase
}

// Cost is the time that the recorder took from the run.
type Cost struct {
	Setup  time.Duration // from Run to the first program, and between phases
	Answer time.Duration // answering system calls, summed over the threads that do
	Close  time.Duration // from the last process's end to the result
}

// A PhaseEnd says how one phase ended.
type PhaseEnd struct {
	Phase journal.Phase
	journal.PhaseEnd
}

// Result of a run whose journal was closed.
type Result struct {
	Code    int // exit code of the command, 128+n if signal n ended it
	Outcome journal.Outcome
	Final   journal.Final
	Rows    uint64   // rows of the journal
	Root    [32]byte // RFC 9162 root over them
	Skipped []string // what the sandbox could not show, each with the reason

	// KeysLeft says that the run held more text of the shape of keys, or of
	// RemovePatterns, than is removed: RunDir holds some as it was.
	KeysLeft bool

	Phases  []PhaseEnd       // in order; empty without Start.Phases
	Rewards []journal.Reward // read from the grading, in order of their source
	Guards  []GuardHit       // verdict and grader files that were not as they must be
	Cost    Cost
	Backend string   // as the start row names it
	Limits  []string // how each limit was set, and "... reached" if the run met it
}

// A GuardHit is a file that could have decided the reward and that the run
// touched.
type GuardHit struct {
	Path string
	journal.Guard
}

// Unavailable says that this machine cannot run the namespaced recorder.
type Unavailable struct {
	What string // ability that is missing, an id of Doctor
	Err  error
	Hint string // what to do next
}

func (e *Unavailable) Error() string {
	return fmt.Sprintf("sandbox: %s is not available here: %v", e.What, e.Err)
}

func (e *Unavailable) Unwrap() error { return e.Err }

// NotExecuted says that the command itself could not be found or executed as the
// sandbox shows it.
type NotExecuted struct{ Err error }

func (e *NotExecuted) Error() string { return fmt.Sprintf("sandbox: %v", e.Err) }
func (e *NotExecuted) Unwrap() error { return e.Err }

// NotRegistered says that Config.Register failed, so that nothing ran.
type NotRegistered struct{ Err error }

func (e *NotRegistered) Error() string {
	return fmt.Sprintf("sandbox: the run was not registered: %v", e.Err)
}
func (e *NotRegistered) Unwrap() error { return e.Err }

// Refused says that a configuration cannot be run as it is.
type Refused struct {
	Field string // of Config
	Got   string
	Want  string
	Hint  string
}

func (e *Refused) Error() string {
	return fmt.Sprintf("sandbox: %s: got %s, want %s", e.Field, e.Got, e.Want)
}

// Ids of the checks that try a whole run, with namespaces and without.
const (
	checkRun      = "run"
	checkPlainRun = "plain-run"
)

// Works is the backend that Run would choose, "" if none works here.
func Works(checks []Check) string {
	plain := ""
	for _, c := range checks {
		switch {
		case c.OK && c.ID == checkRun:
			return Backend
		case c.OK && c.ID == checkPlainRun:
			plain = PlainBackend
		}
	}
	return plain
}

// A Check is one ability that Doctor tried.
type Check struct {
	ID   string // "user-namespace", "overlay", ...
	OK   bool
	Got  string // what happened
	Hint string // what to do if not OK
}

package journal

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cleanrun-dev/cleanrun/scope"
)

// Version of the row format, bound in every start row.
const Version = "cleanrun/journal/v1"

// Start is what row 0 binds. Everything else in the run follows from it: its
// hash salts every digest of the run (contraband.RunSalt).
type Start struct {
	Version    string       `cbor:"1,keyasint"`
	Run        [16]byte     `cbor:"2,keyasint"` // drawn by the recorder
	Benchmark  string       `cbor:"3,keyasint"` // "" in a run without a task
	Task       string       `cbor:"4,keyasint"`
	Trial      uint32       `cbor:"5,keyasint"` // from 1; 0 without a task
	Attempt    uint32       `cbor:"6,keyasint"` // from 1; 0 without a task
	Commitment [32]byte     `cbor:"7,keyasint"` // task commitment of the sealed set, zero without a task
	Seal       [32]byte     `cbor:"8,keyasint"` // SHA-256 of the sealed set's file, zero without a task
	Baseline   [32]byte     `cbor:"9,keyasint"` // Merkle root of the baseline manifest as found at the start
	Roots      []scope.Root `cbor:"10,keyasint"`
	Workspace  string       `cbor:"11,keyasint"` // path of the workspace inside the sandbox
	Observe    bool         `cbor:"12,keyasint"` // the whole host was visible read-only
	Channels   []Channel    `cbor:"13,keyasint"` // sorted by name
	Recorder   string       `cbor:"14,keyasint"` // version of the recorder
	Backend    string       `cbor:"15,keyasint"` // how it watched, e.g. "namespaces+seccomp-notify"
	Blind      []string     `cbor:"16,keyasint"` // ids of what the backend does not see, sorted
	// Registration and Freshness show that the run was in a transparency log before
	// it started: both are null, or both are bytes that only spec/log.md gives a
	// meaning.
	Registration *[]byte `cbor:"17,keyasint"`
	Freshness    *[]byte `cbor:"18,keyasint"`
	Agent        string  `cbor:"19,keyasint"` // asserted by the runner
	Model        string  `cbor:"20,keyasint"` // asserted by the runner
	// Phases say what runs beside the agent; null in a run of an agent alone.
	Phases *Phases `cbor:"21,keyasint"`
	// Marker is what binds the marker of a planted file, 32 bytes (spec/expect.md);
	// nil if nothing is planted.
	Marker []byte `cbor:"22,keyasint,omitempty"`
}

// A Channel is a stream that the task declares, such as "stdin" of role "model".
type Channel struct {
	_    struct{} `cbor:",toarray"`
	Name string   // "stdin"
	Role string   // "model" or "driver"
}

// Outcome closes a journal.
type Outcome uint8

const (
	Completed Outcome = iota + 1 // the command ended by itself with 0
	Failed                       // the command ended by itself with another code or a signal
	Cancelled                    // the user stopped it
	Abandoned                    // the recorder gave up; the reason is in the detail
)

// Final is what the closing row binds.
type Final struct {
	Outcome  Outcome     `cbor:"1,keyasint"`
	Code     uint32      `cbor:"2,keyasint"` // exit code of the command, 128+n if signal n ended it
	Counts   []OpCount   `cbor:"3,keyasint"` // rows before this one, sorted by phase, then op
	Born     uint64      `cbor:"4,keyasint"` // processes started
	Ended    uint64      `cbor:"5,keyasint"` // processes seen to end
	Received uint64      `cbor:"6,keyasint"` // notifications received
	Answered uint64      `cbor:"7,keyasint"` // answered
	Void     uint64      `cbor:"8,keyasint"` // whose caller was gone
	Lost     uint64      `cbor:"9,keyasint"` // events known to be lost
	Delta    DeltaResult `cbor:"10,keyasint"`
}

// OpCount counts rows of one phase and operation.
type OpCount struct {
	_     struct{} `cbor:",toarray"`
	Phase Phase
	Op    Op
	N     uint64
}

// DeltaResult compares the overlay's upper layer with the journaled writes.
type DeltaResult struct {
	_           struct{} `cbor:",toarray"`
	Changed     uint64   // paths that differ between the layers
	Unexplained uint64   // of those, paths without a journaled write
}

// Detail is the private half of a row. It stays in RUNDIR; disclosing it with
// its salt opens the row's commitment.
type Detail struct {
	Path    string            `cbor:"1,keyasint,omitempty"`  // resolved, inside the sandbox
	Path2   string            `cbor:"2,keyasint,omitempty"`  //
	Asked   string            `cbor:"3,keyasint,omitempty"`  // the path as the program spelled it, if it differs
	SHA256  []byte            `cbor:"4,keyasint,omitempty"`  // of the content; the content is objects/<hex> in RUNDIR
	Text    []byte            `cbor:"5,keyasint,omitempty"`  // content of a FlagText row
	Argv    []string          `cbor:"6,keyasint,omitempty"`  // exec
	Env     []string          `cbor:"7,keyasint,omitempty"`  // names only; values are never stored
	Cwd     string            `cbor:"8,keyasint,omitempty"`  //
	Address string            `cbor:"9,keyasint,omitempty"`  // socket address, e.g. "inet 127.0.0.1:80"
	Syscall string            `cbor:"10,keyasint,omitempty"` // name of the call
	Mode    uint32            `cbor:"11,keyasint,omitempty"` //
	Args    map[string]uint64 `cbor:"12,keyasint,omitempty"` //
	Exit    int32             `cbor:"13,keyasint,omitempty"` // exit row: wait status as code, or -signal
	PID     int32             `cbor:"14,keyasint,omitempty"` // inside the sandbox
	Note    string            `cbor:"15,keyasint,omitempty"` // reason, for killed, lost, final
	ReadBy  []uint32          `cbor:"16,keyasint,omitempty"` // wrote: processes that hold the file open for reading
}

// checkFirst holds row 0, and only row 0, to be the start row.
func (c *Checker) checkFirst(r *Row) *RuleError {
	switch {
	case r.Op != OpStart:
		return broken(RuleStart, "the start row first", "operation %v", r.Op)
	case c.start != nil:
		return broken(RuleStart, "one start row", "a second one")
	case r.Time != 0 || r.Phase != PhaseSetup || r.Object != 0:
		return broken(RuleStart, "time 0, phase setup, object 0", "time %d, phase %v, object %d", r.Time, r.Phase, r.Object)
	}
	if err := CheckStart(r.Start); err != nil {
		return broken(RuleStart, "a valid start", "%v", err)
	}
	return nil
}

func (c *Checker) begin(s *Start) {
	table, err := scope.NewTable(s.Roots)
	if err != nil {
		panic(err) // CheckStart checked the roots
	}
	c.table, c.start = table, s
	for _, ch := range s.Channels {
		c.model = c.model || ch.Name == "stdin" && ch.Role == "model"
	}
}

// maxText bounds each text of the start row, in bytes. They are shown on
// screens: control characters are refused too.
const maxText = 1024

// CheckStart refuses a start that a journal of this version may not open with.
func CheckStart(s *Start) error {
	if s.Version != Version {
		return fmt.Errorf("got version %q, want %q", s.Version, Version)
	}
	if s.Run == ([16]byte{}) {
		return fmt.Errorf("got a zero run id, want one that was drawn")
	}
	for _, text := range slices.Concat([]string{s.Benchmark, s.Task, s.Recorder, s.Backend, s.Agent, s.Model}, s.Blind) {
		if err := checkText(text); err != nil {
			return err
		}
	}
	if s.Recorder == "" || s.Backend == "" {
		return fmt.Errorf("got recorder %q, backend %q, want both named", s.Recorder, s.Backend)
	}
	task := s.Task != ""
	if task != (s.Benchmark != "") || task != (s.Trial != 0) || task != (s.Attempt != 0) ||
		task != (s.Commitment != [32]byte{}) || task != (s.Seal != [32]byte{}) {
		return fmt.Errorf("got benchmark %q, task %q, trial %d, attempt %d, want all of them with commitment and seal, or none", s.Benchmark, s.Task, s.Trial, s.Attempt)
	}
	if err := scope.CheckRoots(s.Roots); err != nil {
		return err
	}
	if err := checkWorkspace(s); err != nil {
		return err
	}
	for i, ch := range s.Channels {
		if ch.Name != "stdin" || ch.Role != "model" && ch.Role != "driver" {
			return fmt.Errorf("got channel %q of role %q, want stdin of role model or driver", ch.Name, ch.Role)
		}
		if i > 0 {
			return fmt.Errorf("got channel %q twice, want it once", ch.Name)
		}
	}
	for i := 1; i < len(s.Blind); i++ {
		if s.Blind[i-1] >= s.Blind[i] {
			return fmt.Errorf("got %q after %q, want the blind spots sorted and unique", s.Blind[i], s.Blind[i-1])
		}
	}
	if err := CheckPhases(s.Phases); err != nil {
		return err
	}
	if n := len(s.Marker); n != 0 && (n != 32 || !task) {
		return fmt.Errorf("got a marker of %d bytes, want 32 in a run with a task, or none", n)
	}
	return checkLogged(s)
}

// maxLogged bounds each of registration and freshness, in bytes.
const maxLogged = 16 << 10

// checkLogged holds a start to say all about its log, or nothing.
func checkLogged(s *Start) error {
	if (s.Registration != nil) != (s.Freshness != nil) {
		return fmt.Errorf("got one of registration and freshness, want both or none")
	}
	if s.Registration == nil {
		return nil
	}
	for _, b := range [...]*[]byte{s.Registration, s.Freshness} {
		if len(*b) == 0 || len(*b) > maxLogged {
			return fmt.Errorf("got a registration of %d bytes, freshness of %d, want 1 to %d each", len(*s.Registration), len(*s.Freshness), maxLogged)
		}
	}
	return nil
}

func checkWorkspace(s *Start) error {
	found := 0
	for _, r := range s.Roots {
		if r.Class != scope.Workspace {
			continue
		}
		found++
		if r.Path != s.Workspace || r.Mode != scope.ReadTree && r.Mode != scope.WriteTree {
			return fmt.Errorf("got workspace root %q of mode %d, want the tree %q", r.Path, r.Mode, s.Workspace)
		}
	}
	if found != 1 {
		return fmt.Errorf("got %d workspace roots, want 1", found)
	}
	return nil
}

func checkText(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("got a text of %d bytes, want at most %d", len(text), maxText)
	}
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return fmt.Errorf("got text %q, want printable characters only", text)
	}
	return nil
}

// checkFinal compares what the closing row binds with the rows.
func (c *Checker) checkFinal(r *Row) *RuleError {
	f := r.Final
	if f.Outcome < Completed || f.Outcome > Abandoned || f.Code > 255 {
		return broken(RuleFinal, "outcome 1 to 4, code at most 255", "outcome %d, code %d", f.Outcome, f.Code)
	}
	if f.Outcome == Completed && f.Code != 0 || f.Outcome == Failed && f.Code == 0 {
		return broken(RuleFinal, "code 0 exactly if completed", "outcome %d, code %d", f.Outcome, f.Code)
	}
	if counts := c.counted(); !sameCounts(f.Counts, counts) {
		return broken(RuleFinal, fmt.Sprintf("counts %v, as the rows before", counts), "counts %v", f.Counts)
	}
	for _, n := range [...]struct {
		name       string
		bound, row uint64
	}{
		{"processes born", f.Born, uint64(len(c.ended) - 1)},
		{"processes ended", f.Ended, c.sum.Ended},
		{"void notifications", f.Void, c.sum.Void},
	} {
		if n.bound != n.row {
			return broken(RuleFinal, fmt.Sprintf("%d %s, as the rows before", n.row, n.name), "%d", n.bound)
		}
	}
	if f.Lost < c.sum.Lost {
		return broken(RuleFinal, fmt.Sprintf("at least %d events lost, one for each lost row", c.sum.Lost), "%d", f.Lost)
	}
	if f.Delta.Unexplained > f.Delta.Changed {
		return broken(RuleFinal, "at most as many paths unexplained as changed", "%d of %d", f.Delta.Unexplained, f.Delta.Changed)
	}
	return nil
}

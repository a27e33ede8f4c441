package main

import (
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/journal"
)

var (
	inspectEvents   bool
	inspectStdout   bool
	inspectStderr   bool
	inspectIdentity string
)

var inspectCommand = &cli.Command{
	Name:  "inspect",
	Args:  "RUNDIR|out.cleanrun|task.sealed",
	Short: "show what a run folder, a bundle or a sealed set holds, without verifying it",
	Long: `Counts the recorded events by kind, and says what the task lets the run change and which path it names. With -events also lists the
events, one line each: number, seconds since the start, process, operation, result, bytes, and the path where it is known (in a run folder; a
bundle shows those that its task asks for).

Of a sealed set (a file named *.sealed) it shows what stands in it in clear: what is sealed, by kind, and what a run may read and change.

With -stdout or -stderr it prints what the run wrote there, and nothing else: of all phases, with secrets replaced (only from a run folder that
was not pruned).

Nothing here is verified: a bundle may say anything. Use cleanrun verify for that.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		f.Bool(&inspectEvents, "events", "list the events too")
		f.Bool(&inspectStdout, "stdout", "print what the run wrote to stdout")
		f.Bool(&inspectStderr, "stderr", "print what the run wrote to stderr")
		f.String(&inspectIdentity, "identity", identityUsage)
	},
	Run: func(e *cli.Env, args []string) error {
		path, err := oneArg(args, "the run folder, bundle or sealed set")
		if err != nil {
			return err
		}
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && strings.HasSuffix(path, ".sealed") {
			if inspectEvents || inspectStdout || inspectStderr || inspectIdentity != "" {
				return cli.Failf(cli.ExitUsage, "name the run folder or the bundle", "%s: is a sealed set, which has no events", path)
			}
			return inspectSet(e, path)
		}
		ev, err := readEvents(path, inspectIdentity)
		if err != nil {
			return err
		}
		if inspectStdout || inspectStderr {
			if inspectStdout && inspectStderr || inspectEvents || e.JSON {
				return cli.Failf(cli.ExitUsage, "give one of -stdout, -stderr, -events and -json", "got two ways to print")
			}
			op := journal.OpStdout
			if inspectStderr {
				op = journal.OpStderr
			}
			return printStream(e.Stdout, ev, op, inspectIdentity)
		}
		set, err := ev.sealedOf()
		if err != nil {
			return err
		}
		if set == nil {
			set = &contraband.Set{} // a run without a task
		}
		if e.JSON {
			return e.PrintJSON(inspection(ev, set, inspectEvents))
		}
		var b strings.Builder
		inspectText(&b, ev, set, inspectEvents)
		fmt.Fprint(e.Stdout, b.String())
		return nil
	},
}

type kindCount struct {
	Phase string `json:"phase"`
	Op    string `json:"op"`
	N     uint64 `json:"n"`
}

type inspected struct {
	Verified   bool              `json:"verified"` // always false: inspect verifies nothing
	Rows       uint64            `json:"rows"`
	Root       string            `json:"root"`
	Run        string            `json:"run"`
	Benchmark  string            `json:"benchmark,omitempty"`
	Task       string            `json:"task,omitempty"`
	Trial      uint32            `json:"trial,omitempty"`
	Attempt    uint32            `json:"attempt,omitempty"`
	Workspace  string            `json:"workspace"`
	Observe    bool              `json:"observe"`
	Recorder   string            `json:"recorder"`
	Backend    string            `json:"backend"`
	Blind      []string          `json:"blind"`
	Phases     *phasesJSON       `json:"phases,omitempty"`
	Footprint  *sealedFootprint  `json:"footprint,omitempty"` // of the sealed set
	Expect     *sealedExpect     `json:"expect,omitempty"`    // the same
	Registered *registrationJSON `json:"registered,omitempty"`
	Closed     bool              `json:"closed"`
	Torn       string            `json:"torn,omitempty"`
	Outcome    string            `json:"outcome,omitempty"`
	Code       *uint32           `json:"code,omitempty"`
	OutOf      uint64            `json:"outOfScope"`
	Bytes      uint64            `json:"bytes"`
	Processes  uint64            `json:"processes"`
	Lost       uint64            `json:"lost"`
	Kinds      []kindCount       `json:"kinds"`
	Events     []eventJSON       `json:"events,omitempty"`
}

// phasesJSON is what the start row says of setup and grading.
type phasesJSON struct {
	Setup     []string `json:"setup"`
	Grade     []string `json:"grade"`
	Tests     string   `json:"tests,omitempty"`
	Reward    string   `json:"reward,omitempty"`
	RewardDir string   `json:"rewardDir,omitempty"`
	Guard     []string `json:"guard"`
}

type eventJSON struct {
	Event      uint64   `json:"event"`
	Nanos      uint64   `json:"ns"`
	Phase      string   `json:"phase"`
	Process    uint32   `json:"process"`
	Op         string   `json:"op"`
	How        string   `json:"how,omitempty"`
	Origin     string   `json:"origin,omitempty"`
	Errno      int32    `json:"errno"`
	Bytes      uint64   `json:"bytes"`
	Object     uint32   `json:"object,omitempty"`
	OutOfScope bool     `json:"outOfScope,omitempty"`
	Path       string   `json:"path,omitempty"`
	Path2      string   `json:"path2,omitempty"`
	Argv       []string `json:"argv,omitempty"`
	Note       string   `json:"note,omitempty"`
}

func inspection(ev *events, set *contraband.Set, list bool) inspected {
	s := &ev.summary
	st := s.Start
	out := inspected{
		Rows: uint64(len(ev.rows)), Root: fmt.Sprintf("%x", s.Head.Root), Run: fmt.Sprintf("%x", st.Run),
		Benchmark: st.Benchmark, Task: st.Task, Trial: st.Trial, Attempt: st.Attempt, Workspace: st.Workspace, Observe: st.Observe,
		Recorder: st.Recorder, Backend: st.Backend, Blind: st.Blind, Closed: s.Closed(), OutOf: s.OutOfScope, Bytes: s.Bytes,
		Processes: s.Born, Lost: s.Lost, Kinds: []kindCount{}, Footprint: footprintJSON(set.Footprint), Expect: expectJSON(set.Expect),
	}
	if p := st.Phases; p != nil {
		out.Phases = &phasesJSON{append([]string{}, p.Setup...), append([]string{}, p.Grade...), p.Tests, p.Reward, p.RewardDir, append([]string{}, p.Guard...)}
	}
	out.Registered = registrationOf(ev)
	if ev.torn != nil {
		out.Torn = ev.torn.Error()
	}
	if s.Final != nil {
		out.Outcome, out.Code = s.Final.Outcome.String(), &s.Final.Code
	}
	for _, c := range s.Counts {
		out.Kinds = append(out.Kinds, kindCount{c.Phase.String(), c.Op.String(), c.N})
	}
	if list {
		for i := range ev.rows {
			out.Events = append(out.Events, eventOf(ev, uint64(i)))
		}
	}
	return out
}

func eventOf(ev *events, seq uint64) eventJSON {
	r := &ev.rows[seq]
	out := eventJSON{Event: r.Seq, Nanos: r.Time, Phase: r.Phase.String(), Process: r.Proc, Op: r.Op.String(), How: how(r),
		Origin: r.Origin.String(), Errno: r.Result, Bytes: r.Size, Object: r.Object, OutOfScope: r.Flags&journal.FlagOutOfScope != 0}
	out.Path, out.Path2 = ev.names(seq)
	if d := ev.detail(seq); d != nil {
		out.Argv, out.Note = d.Argv, d.Note
		if out.Path == "" {
			out.Path = d.Address
		}
		if r.Op == journal.OpExec && len(out.Argv) == 0 {
			out.Argv = argvAfter(ev, seq)
		}
		if out.Note == "" && r.Op == journal.OpDenied {
			out.Note = d.Syscall
		}
	}
	return out
}

// argvAfter finds the argument vector of an exec: a row of its own, after the
// interpreters'.
func argvAfter(ev *events, seq uint64) []string {
	for i := seq + 1; i < uint64(len(ev.rows)) && i < seq+64; i++ {
		r := &ev.rows[i]
		if r.Proc != ev.rows[seq].Proc || r.Op == journal.OpDir {
			continue
		}
		if r.Op == journal.OpArgv {
			if d := ev.detail(i); d != nil {
				return d.Argv
			}
		}
		if r.Op != journal.OpInterp {
			return nil
		}
	}
	return nil
}

// how says how an open was meant, how a phase ended, what grading gave and what
// it met.
func how(r *journal.Row) string {
	switch {
	case r.End != nil:
		return phaseEnd(r.End)
	case r.Reward != nil:
		return r.Reward.Value + " by " + map[journal.RewardSource]string{journal.FromExit: "exit code", journal.FromStdout: "stdout",
			journal.FromText: "reward.txt", journal.FromJSON: "reward.json"}[r.Reward.Source]
	case r.Guard != nil:
		what := map[journal.GuardKind]string{journal.GuardReward: "reward file", journal.GuardDeclared: "guarded file", journal.GuardHook: "hook of the run"}[r.Guard.Kind]
		when := "there before grading"
		if r.Guard.Kind == journal.GuardHook {
			when = "opened by grading"
		} else if r.Guard.After {
			when = "changed after grading"
		}
		return what + " " + when
	}
	var s []string
	for _, f := range []struct {
		flag journal.Flags
		name string
	}{{journal.FlagRead, "read"}, {journal.FlagWrite, "write"}, {journal.FlagCreate, "create"}, {journal.FlagTrunc, "truncate"},
		{journal.FlagDirectory, "folder"}, {journal.FlagPath, "path only"}, {journal.FlagHidden, "hidden"}, {journal.FlagControl, "control"},
		{journal.FlagLive, "still written"}, {journal.FlagUnreadable, "unreadable"}, {journal.FlagUnstable, "changed meanwhile"},
		{journal.FlagRemoved, "secrets removed"}} {
		if r.Flags&f.flag != 0 {
			s = append(s, f.name)
		}
	}
	return strings.Join(s, " ")
}

func phaseEnd(end *journal.PhaseEnd) string {
	var s string
	switch end.How {
	case journal.Exited:
		s = fmt.Sprintf("exited with %d", end.Code)
	case journal.TimedOut:
		s = "took too long"
	case journal.NotStarted:
		s = "could not start"
	}
	if end.Left > 0 {
		s += fmt.Sprintf(", %d left behind and killed", end.Left)
	}
	return s
}

func inspectText(b *strings.Builder, ev *events, set *contraband.Set, list bool) {
	s := inspection(ev, set, false)
	fmt.Fprintf(b, "%s: nothing here is verified\n", ev.path)
	if s.Task != "" {
		fmt.Fprintf(b, " task       %s/%s  trial %d  attempt %d\n", s.Benchmark, s.Task, s.Trial, s.Attempt)
	}
	fmt.Fprintf(b, " run        %s\n workspace  %s\n recorder   %s, %s\n", s.Run, s.Workspace, s.Recorder, s.Backend)
	if p := s.Phases; p != nil {
		p.text(b)
	}
	b.WriteString(surroundingsText(set.Footprint, set.Expect))
	s.Registered.text(b)
	switch {
	case s.Closed:
		fmt.Fprintf(b, " outcome    %s, code %d\n", s.Outcome, *s.Code)
	case s.Torn != "":
		fmt.Fprintf(b, " outcome    none: the journal is open and breaks off (%s)\n", s.Torn)
	default:
		fmt.Fprint(b, " outcome    none: the journal is open\n")
	}
	fmt.Fprintf(b, " events     %d in %s, %s, %s of content\n", s.Rows, seconds(ev.summary.Duration), several(s.Processes, "process", "processes"), several(s.Bytes, "byte", "bytes"))
	if s.OutOf > 0 {
		fmt.Fprintf(b, " OUT OF SCOPE  %s\n", several(s.OutOf, "event", "events"))
	}
	for _, k := range s.Kinds {
		fmt.Fprintf(b, "   %-6s %-9s %d\n", k.Phase, k.Op, k.N)
	}
	if !list {
		return
	}
	for i := range ev.rows {
		fmt.Fprintln(b, eventLine(ev, uint64(i)))
	}
}

func (p *phasesJSON) text(b *strings.Builder) {
	if len(p.Setup) > 0 {
		fmt.Fprintf(b, " setup      %q\n", p.Setup)
	}
	if len(p.Grade) > 0 {
		fmt.Fprintf(b, " grader     %q, reward by %s\n", p.Grade, p.Reward)
	}
}

func seconds(ns uint64) string {
	return time.Duration(ns).Round(time.Millisecond).String()
}

// eventLine is one event in a list.
func eventLine(ev *events, seq uint64) string {
	e := eventOf(ev, seq)
	what := e.Op
	if e.How != "" {
		what += " (" + e.How + ")"
	}
	if r := &ev.rows[seq]; r.Op == journal.OpPhase {
		what = r.Phase.String() + " " + what
	}
	line := fmt.Sprintf("%7d %9.4f  p%-4d %s", e.Event, float64(e.Nanos)/1e9, e.Process, what)
	if r := &ev.rows[seq]; r.Op == journal.OpFork || r.Op == journal.OpDir {
		line += fmt.Sprintf(" #%d", r.Child)
	}
	if e.Path != "" {
		line += " " + quotePath(e.Path)
	}
	if e.Path2 != "" {
		line += " -> " + quotePath(e.Path2)
	}
	if len(e.Argv) > 0 {
		line += fmt.Sprintf(" %q", e.Argv)
	}
	if e.Bytes > 0 {
		line += "  " + several(e.Bytes, "byte", "bytes")
	}
	if e.Errno != 0 {
		line += "  " + errnoName(e.Errno)
	}
	if e.Note != "" {
		line += "  " + e.Note
	}
	if e.OutOfScope {
		line += "  OUT OF SCOPE"
	}
	return line
}

// quotePath keeps what a recorded name could do to a terminal off it: control characters,
// and marks that turn or hide text.
func quotePath(p string) string {
	for _, r := range p {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return fmt.Sprintf("%q", p)
		}
	}
	return p
}

// errnoName names the errors of x86-64 Linux that an event can carry: a bundle
// is read on other systems too, whose numbers differ.
func errnoName(n int32) string {
	names := map[int32]string{1: "EPERM", 2: "ENOENT", 4: "EINTR", 5: "EIO", 6: "ENXIO", 9: "EBADF", 11: "EAGAIN", 12: "ENOMEM", 13: "EACCES",
		14: "EFAULT", 16: "EBUSY", 17: "EEXIST", 18: "EXDEV", 19: "ENODEV", 20: "ENOTDIR", 21: "EISDIR", 22: "EINVAL", 23: "ENFILE", 24: "EMFILE",
		26: "ETXTBSY", 27: "EFBIG", 28: "ENOSPC", 30: "EROFS", 31: "EMLINK", 36: "ENAMETOOLONG", 38: "ENOSYS", 39: "ENOTEMPTY", 40: "ELOOP",
		61: "ENODATA", 75: "EOVERFLOW", 95: "EOPNOTSUPP", 97: "EAFNOSUPPORT", 101: "ENETUNREACH", 111: "ECONNREFUSED"}
	if s, ok := names[n]; ok {
		return s
	}
	return fmt.Sprintf("errno %d", n)
}

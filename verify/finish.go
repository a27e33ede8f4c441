package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// finish turns the checks into a report. After a failed check it says nothing of
// the run.
func (v *verifier) finish() *Report {
	v.decide()
	if !v.failed && v.derived != nil {
		v.describe()
	}
	return v.report
}

// decide turns the checks into a verdict and an exit code.
func (v *verifier) decide() {
	r := v.report
	if v.failed {
		r.Verdict = Invalid
		if r.Exit == ExitUnusable {
			r.Verdict = Unusable
		}
		return
	}
	if v.policy == nil {
		v.note("consistent; signer unknown: give a policy with -policy to decide")
	}
	if v.selfSealed() {
		v.note("sealed by the party being judged: owner and runner have one key")
	} else if v.policy != nil && v.owner == nil {
		v.note("sealed by the party being judged, for all that is known: the owner is not pinned")
	}
	r.Verdict, r.Exit = Undecided, ExitUndecided
	if v.open != nil {
		v.note("%s: %s", v.open.ID, v.open.Detail)
		for i := range r.Checks { // a footprint is not all that a policy may require
			if c := &r.Checks[i]; c.Status == Open && c.ID == CheckExpect && c.ID != v.open.ID {
				v.note("%s: %s", c.ID, c.Detail)
			}
		}
		return
	}
	if v.runner == nil || v.owner == nil || v.selfSealed() || v.derived == nil {
		return
	}
	r.Verdict = string(v.derived.Verdict)
	switch v.derived.Verdict {
	case attest.Clean:
		r.Exit = ExitClean
	case attest.Dirty:
		r.Exit = ExitDirty
	}
}

func (v *verifier) describe() {
	r, p := v.report, &v.composed.Predicate
	r.Derived = v.derived.Verdict
	r.Run, r.Score, r.Phases, r.Grader, r.Counts, r.Coverage = &p.Run, p.Score, p.Phases, p.Grader, &p.Counts, &p.Coverage
	r.Agent, r.Model, r.Footprint = p.Asserted.Agent, p.Asserted.Model, p.Footprint
	if r.Expect = p.Expect; r.Expect != nil {
		r.NamedPath = v.set.Expect.Read
	}
	r.Checked = &Checked{Level: levels[v.rederived()], Rederived: v.rederived(), Events: p.Journal.Size, Digests: p.Evidence.Digests, Bytes: p.Coverage.Seen}
	r.Assurance = v.assurance()
	r.CountsAs = countsAs(p.Score, v.derived.Verdict)
	v.why()
	v.attested()
	v.asserted()
	v.trusted()
	v.notCovered()
}

// countsAs applies the verdict to the score.
func countsAs(s *attest.Score, verdict attest.Verdict) string {
	switch {
	case s == nil:
		return ""
	case verdict == attest.Clean:
		return s.Value
	case verdict == attest.Dirty:
		return "0"
	}
	return "unscored"
}

// why lists each sealed group that decided something, and each other reason.
func (v *verifier) why() {
	grouped := map[string]bool{}
	for _, f := range v.derived.Findings {
		grouped[f.Reason] = true
		if f.Class.Whole() && v.told(f) {
			continue // a file is sealed twice, as bytes and as text
		}
		row, _ := v.evidence.Row(f.Event)
		v.report.Why = append(v.report.Why, Why{
			Reason: f.Reason, Dirty: attest.ReasonDirty(f.Reason), Event: f.Event,
			What: describeRow(row), Detail: describeFinding(f),
		})
	}
	for _, reason := range v.derived.Reasons {
		if grouped[reason.ID] {
			continue
		}
		w := Why{Reason: reason.ID, Dirty: attest.ReasonDirty(reason.ID), Event: reason.Event, What: "the whole run", Detail: attest.Explain(reason)}
		if reason.Event > 0 {
			row, _ := v.evidence.Row(reason.Event)
			w.What = describeRow(row)
		}
		if reason.ID == attest.ReasonFootprint {
			w.Detail += "; this event is the first" // the statement names the last of each path
		}
		v.report.Why = append(v.report.Why, w)
	}
	slices.SortStableFunc(v.report.Why, func(a, b Why) int {
		return cmp.Or(cmp.Compare(side(a), side(b)), cmp.Compare(a.Event, b.Event))
	})
}

// told says that the report has a whole object of this event already.
func (v *verifier) told(f attest.Finding) bool {
	return slices.ContainsFunc(v.report.Why, func(w Why) bool {
		return w.Reason == f.Reason && w.Event == f.Event && w.Detail == describeFinding(f)
	})
}

// side sorts what makes a run DIRTY to the front.
func side(w Why) int {
	if w.Dirty {
		return 0
	}
	return 1
}

func describeFinding(f attest.Finding) string {
	what := classWords[f.Class]
	switch {
	case f.Reason == attest.ReasonCanary:
		return plural(f.Found, "canary", "canaries")
	case f.Class == contraband.ClassRaw || f.Class == contraband.ClassCanonical:
		if f.Found == 1 {
			return "a whole sealed object" + wrote(f.Reason)
		}
		return fmt.Sprintf("%d whole sealed objects%s", f.Found, wrote(f.Reason))
	}
	return fmt.Sprintf("%d of at most %d %s of %s (limit %d)%s", f.Found, f.Of, what, kindWords[f.Kind], f.Limit, wrote(f.Reason))
}

func wrote(reason string) string {
	switch reason {
	case attest.ReasonAuthored:
		return ", written by the run with nothing from a declared model channel before"
	case attest.ReasonUnexplained:
		return ", written by the run and absent from the model's replies"
	case attest.ReasonTrace:
		return ", below the limit"
	}
	return ""
}

var classWords = map[contraband.Class]string{
	contraband.ClassShingle: "fragments", contraband.ClassShingle24: "short fragments",
	contraband.ClassLine: "lines", contraband.ClassAtom: "tokens",
}

var kindWords = map[contraband.Kind]string{
	contraband.KindID: "the task id", contraband.KindTitle: "the title", contraband.KindSignal: "a completion signal",
	contraband.KindCommand: "a test command", contraband.KindReference: "the sealed answers",
	contraband.KindTest: "a hidden test", contraband.KindCanary: "a canary",
}

var opWords = map[journal.Op]string{
	journal.OpOpen: "open file", journal.OpWrote: "write file", journal.OpExec: "execute file", journal.OpInterp: "load interpreter",
	journal.OpArgv: "command line", journal.OpUnlink: "remove", journal.OpRename: "rename", journal.OpLink: "link",
	journal.OpSymlink: "symlink", journal.OpMkdir: "make directory", journal.OpMknod: "make node", journal.OpTruncate: "truncate file",
	journal.OpChmod: "change mode", journal.OpChown: "change owner", journal.OpUtime: "change times", journal.OpXattr: "change attributes",
	journal.OpConnect: "connect", journal.OpBind: "bind", journal.OpStdin: "read stdin", journal.OpStdout: "write stdout",
	journal.OpStderr: "write stderr", journal.OpKilled: "process killed", journal.OpLost: "event lost", journal.OpDenied: "denied call",
	journal.OpPhase: "phase ended", journal.OpReward: "reward", journal.OpGuard: "verdict or grader file",
}

var phaseWords = map[journal.Phase]string{journal.PhaseSetup: "setup", journal.PhaseAgent: "agent", journal.PhaseGrade: "grade"}

func describeRow(row *journal.Row) string {
	what := opWords[row.Op]
	if row.Op == journal.OpOpen && row.Dir == journal.DirIn {
		what = "read file"
	}
	if what == "" {
		what = fmt.Sprintf("operation %d", row.Op)
	}
	return what + ", " + phaseWords[row.Phase] + " phase"
}

func (v *verifier) attested() {
	r := v.report
	r.Attested = append(r.Attested, "files", "processes", "writes", "streams")
	if v.derived.Observed != nil {
		r.Attested = append(r.Attested, "grading")
	}
}

func (v *verifier) asserted() {
	r, sum := v.report, v.evidence.Summary()
	add := func(format string, args ...any) { r.Asserted = append(r.Asserted, fmt.Sprintf(format, args...)) }
	add("digest derivation, until the task key is revealed")
	add("the folders that a path digest stands in, until a row is disclosed")
	if r.Agent != "" {
		add("agent version")
	}
	if r.Model != "" {
		add("model name")
	}
	if r.Score != nil && r.Score.Source == attest.ScoreAsserted {
		add("score")
	}
	if p := v.evidence.Start().Phases; p != nil && v.set.Phases == nil {
		for _, c := range []struct {
			what string
			argv []string
		}{{"setup", p.Setup}, {"grader", p.Grade}} {
			if len(c.argv) > 0 {
				add("%s chosen by the runner", c.what)
			}
		}
	}
	if n := v.derived.Counts.GradeShared; n > 0 {
		add("reward: tests were open in one process with the agent's code, or in one that it started (%s)", plural(n, "process", "processes"))
	}
	if f := v.derived.Footprint; f != nil && f.Compiled > 0 {
		add("the sources of %s of Python, which the footprint leaves out", plural(f.Compiled, "cached module", "cached modules"))
	}
	if v.derived.Expect != nil {
		add("that nobody told the run its marker")
	}
	if n := v.derived.Coverage.Baseline; n > 0 {
		add("%s as part of the sealed baseline", plural(n, "byte", "bytes"))
	}
	if sum.Pseudo > 0 {
		add("%s to have no content of their own", plural(sum.Pseudo, "device or kernel object", "devices or kernel objects"))
	}
	if sum.Removed > 0 {
		add("that nothing but secrets was removed from %s before storage", plural(sum.Removed, "event", "events"))
	}
	for _, c := range []struct {
		class scope.Class
		what  string
	}{{scope.Toolchain, "toolchain"}, {scope.Private, "private"}} {
		var paths []string
		for _, root := range v.evidence.Start().Roots {
			if root.Class == c.class {
				paths = append(paths, root.Path)
			}
		}
		if len(paths) > 0 {
			add("the choice of %s as %s", strings.Join(paths, ", "), c.what)
		}
	}
}

func (v *verifier) notCovered() {
	r := v.report
	add := func(format string, args ...any) { r.NotCovered = append(r.NotCovered, fmt.Sprintf(format, args...)) }
	for _, c := range v.derived.NotCovered {
		add("%s (opaque %s channel, %s)", c.Name, c.Role, plural(c.Bytes, "byte", "bytes"))
	}
	if n := v.derived.Counts.Authored; n > 0 {
		add("where %s come from that the run wrote itself", plural(n, "sealed item", "sealed items"))
	}
	if start := v.evidence.Start(); len(start.Blind) > 0 {
		add("what %s does not see: %s", start.Backend, strings.Join(blindWords(start.Blind), ", "))
	}
	for _, c := range v.set.Uncovered {
		if c.N > 0 {
			add("%s of %s, too weak to seal", plural(uint64(c.N), "item", "items"), kindWords[c.Kind])
		}
	}
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return group(n) + " " + many
}

// group writes a number with commas between thousands.
func group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// blindWords says in words what a recorder does not see; an id that this version
// does not know stays as it is.
func blindWords(ids []string) []string {
	words := map[string]string{
		"clone3":               "attempts to call clone3, which is refused",
		"directory-listing":    "names that a folder's listing shows",
		"metadata-read":        "stat and readlink",
		"partial-read":         "which bytes of an opened file were read",
		"secret-patterns":      "text of patterns that the runner chose, replaced before storage",
		"secret-values":        "secrets that the runner named, replaced before storage",
		"unix-message-address": "addresses of datagrams on unix sockets",
	}
	out := make([]string, len(ids))
	for i, id := range ids {
		if out[i] = words[id]; out[i] == "" {
			out[i] = id
		}
	}
	return out
}

package journal

import (
	"fmt"
	"math/bits"

	"github.com/cleanrun-dev/cleanrun/scope"
)

// presence of a key.
type presence uint8

const (
	never    presence = iota
	may               // may be there
	resolved          // must be there if the result is success or a refusal: scope is decided by it
)

// actor of a row.
type actor uint8

const (
	anyone   actor = iota
	recorder       // process 0
	process        // a process that was born
)

// A shape is what one operation may carry.
type shape struct {
	path, path2 presence
	actor       actor
	child       bool // has key 15
	fails       bool // may have a result other than 0
	flags       Flags
	named       bool // on success its new name is content: FlagText, out, run
}

const (
	pathFlags    = FlagOutOfScope | FlagHidden | FlagRemoved | FlagDirectory | FlagPseudo
	contentFlags = FlagLive | FlagUnstable | FlagUnreadable | FlagRemoved
	// flags of what happened: a failed operation has none of them
	doneFlags = FlagCreate | FlagTrunc | FlagLive | FlagText | FlagUnstable | FlagUnreadable
)

var shapes = [...]shape{
	OpStart:    {actor: recorder},
	OpFinal:    {actor: recorder},
	OpDir:      {actor: recorder, path: resolved, child: true},
	OpOpen:     {actor: process, path: resolved, fails: true, flags: pathFlags | contentFlags | FlagRead | FlagWrite | FlagCreate | FlagTrunc | FlagText | FlagControl | FlagPath},
	OpWrote:    {path: may, flags: FlagOutOfScope | contentFlags},
	OpExec:     {actor: process, path: resolved, fails: true, flags: FlagOutOfScope | FlagHidden | contentFlags},
	OpInterp:   {actor: process, path: resolved, fails: true, flags: FlagOutOfScope | FlagHidden | contentFlags},
	OpArgv:     {actor: process, flags: FlagText | FlagRemoved},
	OpUnlink:   {actor: process, path: resolved, fails: true, flags: pathFlags},
	OpRename:   {actor: process, path: resolved, path2: resolved, fails: true, flags: pathFlags | FlagText, named: true},
	OpLink:     {actor: process, path: resolved, path2: resolved, fails: true, flags: pathFlags | FlagText, named: true},
	OpSymlink:  {actor: process, path: resolved, fails: true, flags: pathFlags | FlagText, named: true},
	OpMkdir:    {actor: process, path: resolved, fails: true, flags: pathFlags | FlagText, named: true},
	OpMknod:    {actor: process, path: resolved, fails: true, flags: pathFlags | FlagText, named: true},
	OpTruncate: {actor: process, path: may, fails: true, flags: pathFlags | contentFlags},
	OpChmod:    {actor: process, path: may, fails: true, flags: pathFlags},
	OpChown:    {actor: process, path: may, fails: true, flags: pathFlags},
	OpUtime:    {actor: process, path: may, fails: true, flags: pathFlags},
	OpXattr:    {actor: process, path: may, fails: true, flags: pathFlags},
	OpConnect:  {actor: process, path: may, fails: true, flags: pathFlags},
	OpBind:     {actor: process, path: may, fails: true, flags: pathFlags},
	OpFork:     {child: true},
	OpExit:     {actor: process},
	OpStdin:    {flags: FlagRemoved | FlagUnreadable},
	OpStdout:   {flags: FlagRemoved | FlagUnreadable},
	OpStderr:   {flags: FlagRemoved | FlagUnreadable},
	OpDenied:   {actor: process, fails: true, flags: FlagRemoved},
	OpKilled:   {actor: process},
	OpVoid:     {},
	OpLost:     {},
	OpPhase:    {actor: recorder},
	OpReward:   {actor: recorder},
	OpGuard:    {path: resolved, flags: FlagRemoved},
}

// maxErrno is the largest errno that Linux returns (MAX_ERRNO).
const maxErrno = 4095

// checkShape applies the rules that need no other row.
func checkShape(r *Row) *RuleError {
	if int(r.Op) >= len(shapes) || r.Op < OpStart {
		return broken(RuleOp, "a known operation", "operation %v", r.Op)
	}
	s := &shapes[r.Op]
	if err := checkKeys(r, s); err != nil {
		return err
	}
	if r.Result < 0 || r.Result > maxErrno {
		return broken(RuleResult, "0 or an errno of at most 4095", "result %d", r.Result)
	}
	if r.Result != 0 && !s.fails {
		return broken(RuleResult, fmt.Sprintf("0 for operation %v", r.Op), "result %d", r.Result)
	}
	if r.Result == 0 && r.Op == OpDenied {
		return broken(RuleResult, "the errno of a denied call", "0")
	}
	if err := checkFlags(r, s); err != nil {
		return err
	}
	if err := checkParts(r); err != nil {
		return err
	}
	return checkContent(r, s)
}

func checkKeys(r *Row, s *shape) *RuleError {
	if s.actor == recorder && r.Proc != 0 || s.actor == process && r.Proc == 0 {
		return broken(RuleProc, "0 for the recorder's operations, a process for a program's", "process %d for operation %v", r.Proc, r.Op)
	}
	result := scope.ResultOf(r.Result)
	for i, p := range [2]*PathRef{r.Path, r.Path2} {
		want := [2]presence{s.path, s.path2}[i]
		if p != nil && want == never {
			return broken(RuleOp, "no path", "key %d in operation %v", 13+i, r.Op)
		}
		if p == nil && want == resolved && (result == scope.Succeeded || result == scope.Denied) && !nameless(r) {
			return broken(RuleOp, "the resolved path", "no key %d in operation %v with result %d", 13+i, r.Op, r.Result)
		}
	}
	if s.child != (r.Child != 0) {
		return broken(RuleOp, "key 15 in dir and fork rows only", "child %d in operation %v", r.Child, r.Op)
	}
	if (r.Op == OpStart) != (r.Start != nil) || (r.Op == OpFinal) != (r.Final != nil) {
		return broken(RuleOp, "key 16 in the start row and key 17 in a final row", "operation %v", r.Op)
	}
	return nil
}

// nameless tells an exec or open of the run's own object without a name, such as
// a memfd.
func nameless(r *Row) bool {
	return (r.Op == OpExec || r.Op == OpOpen) && r.Origin == OriginRun && r.Dir == DirIn && r.Object != 0
}

func checkFlags(r *Row, s *shape) *RuleError {
	f := r.Flags
	if f&^allFlags != 0 || f&^s.flags != 0 {
		return broken(RuleFlags, fmt.Sprintf("bits of 0x%x only for operation %v", uint32(s.flags), r.Op), "flags 0x%x", uint32(f))
	}
	if r.Result != 0 && f&doneFlags != 0 {
		return broken(RuleFlags, "no flag of something done after a failure", "flags 0x%x with result %d", uint32(f), r.Result)
	}
	if f&FlagHidden != 0 && (scope.ResultOf(r.Result) != scope.Absent || r.Path == nil) {
		return broken(RuleFlags, "hidden only with a path and an absent result", "result %d", r.Result)
	}
	if r.Op != OpOpen {
		return nil
	}
	if (f&FlagPath != 0) == (f&(FlagRead|FlagWrite) != 0) {
		return broken(RuleFlags, "either read and write, or path", "flags 0x%x", uint32(f))
	}
	if f&FlagPath != 0 && f&(FlagCreate|FlagTrunc) != 0 {
		return broken(RuleFlags, "no create or trunc with path", "flags 0x%x", uint32(f))
	}
	if f&FlagCreate != 0 && f&(FlagDirectory|FlagPseudo|FlagUnreadable) != 0 {
		return broken(RuleFlags, "create of a regular file alone", "flags 0x%x", uint32(f))
	}
	if bits.OnesCount32(uint32(f&(FlagDirectory|FlagPseudo|FlagUnreadable))) > 1 {
		return broken(RuleFlags, "one of directory, pseudo, unreadable", "flags 0x%x", uint32(f))
	}
	if f&FlagControl != 0 && r.Phase != PhaseSetup {
		return broken(RuleFlags, "control files opened in the setup phase", "phase %v", r.Phase)
	}
	return nil
}

// need returns the access that the row uses its paths with.
func need(r *Row) scope.Access {
	switch r.Op {
	case OpDir, OpGuard:
		return scope.None
	case OpExec, OpInterp:
		return scope.Read
	case OpOpen:
		switch {
		case r.Flags&FlagPath != 0:
			return scope.None
		case r.Flags&(FlagWrite|FlagCreate|FlagTrunc) == 0:
			return scope.Read
		}
	}
	return scope.Write
}

// content of a row: direction and the origins that go with it.
type content struct {
	dir     Direction
	origins []Origin
}

var (
	nothing = content{DirNone, []Origin{OriginNone}}
	output  = content{DirOut, []Origin{OriginRun}}
	foreign = content{DirIn, []Origin{OriginInput, OriginDriver}}
	file    = content{DirIn, []Origin{OriginInput, OriginDriver, OriginRun}}
	stdin   = content{DirIn, []Origin{OriginDriver, OriginModel}}
	command = content{DirIn, []Origin{OriginDriver}}
)

// contents returns what a row of this operation, result and flags may carry.
func contents(r *Row, s *shape) []content {
	if r.Result != 0 || r.Flags&(FlagUnreadable|FlagPseudo|FlagDirectory|FlagPath) != 0 && !s.named {
		return []content{nothing}
	}
	if s.named {
		return []content{output}
	}
	switch r.Op {
	case OpOpen:
		switch {
		case r.Flags&FlagCreate != 0:
			return []content{output} // the new name
		case r.Flags&FlagTrunc != 0:
			return []content{nothing}
		case r.Flags&FlagRead != 0:
			return []content{file}
		}
		return []content{nothing, foreign} // nothing: the run produced this version, see Checker
	case OpTruncate:
		return []content{nothing, foreign}
	case OpExec, OpInterp:
		return []content{file}
	case OpWrote, OpStdout, OpStderr:
		return []content{output}
	case OpArgv:
		return []content{output, command}
	case OpStdin:
		return []content{stdin}
	}
	return []content{nothing}
}

func checkContent(r *Row, s *shape) *RuleError {
	if err := checkOrigin(r, s); err != nil {
		return err
	}
	if r.Dir == DirNone && r.Size != 0 {
		return broken(RuleContent, "size 0 without content", "size %d", r.Size)
	}
	text := r.Op == OpArgv || r.Dir == DirOut && (s.named || r.Op == OpOpen)
	if text != (r.Flags&FlagText != 0) {
		return broken(RuleFlags, "text exactly on argument vectors and new names", "flags 0x%x in operation %v", uint32(r.Flags), r.Op)
	}
	if text && r.Op != OpArgv && r.Size == 0 {
		return broken(RuleContent, "a new name", "size 0")
	}
	if r.Object != 0 && (r.Flags&FlagDirectory != 0 || r.Op == OpOpen && r.Flags&FlagPseudo != 0) {
		return broken(RuleContent, "no object: a folder and a pseudo file have no content", "object %d with flags 0x%x", r.Object, uint32(r.Flags))
	}
	filed := r.Op == OpOpen || r.Op == OpExec || r.Op == OpInterp || r.Op == OpWrote || r.Op == OpTruncate
	if r.Object == 0 && (filed && r.Dir != DirNone || r.Op == OpVoid) {
		return broken(RuleContent, "the number of the object", "object 0 in operation %v", r.Op)
	}
	return nil
}

func checkOrigin(r *Row, s *shape) *RuleError {
	allowed := contents(r, s)
	rule := RuleContent
	for _, c := range allowed {
		if c.dir != r.Dir {
			continue
		}
		rule = RuleOrigin
		for _, o := range c.origins {
			if o == r.Origin {
				return nil
			}
		}
	}
	return broken(rule, fmt.Sprintf("one of (direction, origins) %v", allowed),
		"direction %d, origin %d in operation %v, result %d, flags 0x%x", r.Dir, r.Origin, r.Op, r.Result, uint32(r.Flags))
}

package journal

import "fmt"

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
		return broken(RuleFlags, "text exactly on argument vectors and new names", "flags 0x%x in operation %d", uint32(r.Flags), r.Op)
	}
	if text && r.Op != OpArgv && r.Size == 0 {
		return broken(RuleContent, "a new name", "size 0")
	}
	filed := r.Op == OpOpen || r.Op == OpExec || r.Op == OpInterp || r.Op == OpWrote || r.Op == OpTruncate
	if r.Object == 0 && (filed && r.Dir != DirNone || r.Op == OpVoid) {
		return broken(RuleContent, "the number of the object", "object 0 in operation %d", r.Op)
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
		"direction %d, origin %d in operation %d, result %d, flags 0x%x", r.Dir, r.Origin, r.Op, r.Result, uint32(r.Flags))
}

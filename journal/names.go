package journal

import "strconv"

var opNames = map[Op]string{
	OpStart: "start", OpFinal: "final", OpDir: "dir", OpOpen: "open", OpWrote: "wrote", OpExec: "exec", OpInterp: "interp",
	OpArgv: "argv", OpUnlink: "unlink", OpRename: "rename", OpLink: "link", OpSymlink: "symlink", OpMkdir: "mkdir",
	OpMknod: "mknod", OpTruncate: "truncate", OpChmod: "chmod", OpChown: "chown", OpUtime: "utime", OpXattr: "xattr",
	OpConnect: "connect", OpBind: "bind", OpFork: "fork", OpExit: "exit", OpStdin: "stdin", OpStdout: "stdout",
	OpStderr: "stderr", OpDenied: "denied", OpKilled: "killed", OpVoid: "void", OpLost: "lost",
	OpPhase: "phase", OpReward: "reward", OpGuard: "guard",
}

// String is the operation's name on screens and in JSON.
func (o Op) String() string {
	if s, ok := opNames[o]; ok {
		return s
	}
	return "op " + strconv.Itoa(int(o))
}

var phaseNames = [...]string{"setup", "agent", "grade"}

// String is the phase's name.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "phase " + strconv.Itoa(int(p))
}

var originNames = [...]string{"", "input", "network", "driver", "model", "reply", "run"}

// String is the origin's name, "" for none.
func (o Origin) String() string {
	if int(o) < len(originNames) {
		return originNames[o]
	}
	return "origin " + strconv.Itoa(int(o))
}

var outcomeNames = map[Outcome]string{Completed: "completed", Failed: "failed", Cancelled: "cancelled", Abandoned: "abandoned"}

// String is the outcome's name.
func (o Outcome) String() string {
	if s, ok := outcomeNames[o]; ok {
		return s
	}
	return "outcome " + strconv.Itoa(int(o))
}

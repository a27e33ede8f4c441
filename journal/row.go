package journal

// A Row is one public line of the journal. It is a CBOR map with the integer
// keys of the tags below (spec/journal.md). What a row says of names and
// contents is only digests and sizes; the plaintext waits in its Detail, bound
// by Commit.
type Row struct {
	Seq    uint64    `cbor:"1,keyasint"`            // 0 for the start row, then +1
	Time   uint64    `cbor:"2,keyasint"`            // nanoseconds since the start row, monotonic clock, never decreasing
	Phase  Phase     `cbor:"3,keyasint"`            //
	Proc   uint32    `cbor:"4,keyasint"`            // number of the acting process in order of birth, from 1; 0 is the recorder
	Op     Op        `cbor:"5,keyasint"`            //
	Dir    Direction `cbor:"6,keyasint"`            // which way content moved, seen from the run
	Origin Origin    `cbor:"7,keyasint"`            // where the content comes from
	Result int32     `cbor:"8,keyasint"`            // 0, or the errno that the program got
	Flags  Flags     `cbor:"9,keyasint"`            //
	Size   uint64    `cbor:"10,keyasint"`           // bytes of content that this row exposes; 0 if none
	Object uint32    `cbor:"11,keyasint"`           // number of the file (inode) or stream in order of first sight, from 1; 0 is none
	Commit [32]byte  `cbor:"12,keyasint"`           // SHA-256(label || salt || detail), see Commit
	Path   *PathRef  `cbor:"13,keyasint,omitempty"` // the resolved path
	Path2  *PathRef  `cbor:"14,keyasint,omitempty"` // the other path of rename and link
	Child  uint32    `cbor:"15,keyasint,omitempty"` // fork: number of the new process; dir: number of the new directory
	Start  *Start    `cbor:"16,keyasint,omitempty"` // only, and always, in row 0
	Final  *Final    `cbor:"17,keyasint,omitempty"` // only, and always, in a final row
	End    *PhaseEnd `cbor:"18,keyasint,omitempty"` // only, and always, in a phase row
	Reward *Reward   `cbor:"19,keyasint,omitempty"` // only, and always, in a reward row
	Guard  *Guard    `cbor:"20,keyasint,omitempty"` // only, and always, in a guard row
}

// A PathRef names a path without showing it: the number of its parent directory,
// declared by an earlier dir row (0 is "/"), and the path's own digest
// (scope.Digest). The root directory is PathRef{0, digest of "/"}.
type PathRef struct {
	_      struct{} `cbor:",toarray"`
	Dir    uint32
	Digest [32]byte
}

// Phase of an attempt.
type Phase uint8

const (
	PhaseSetup Phase = iota
	PhaseAgent
	PhaseGrade
)

// Direction of content, seen from the run.
type Direction uint8

const (
	DirNone Direction = iota // no content, or an operation on names
	DirIn                    // exposed to the run
	DirOut                   // produced by the run
)

// Origin says where a row's content was before the row.
type Origin uint8

const (
	OriginNone    Origin = iota // no content
	OriginInput                 // a file that was there and that the run did not produce
	OriginNetwork               //
	OriginDriver                // the harness: stdin, the command line that starts the run, files sent in
	OriginModel                 // a channel declared as the model's, not parsed: opaque
	OriginReply                 // a reply on a parsed model channel
	OriginRun                   // the run produced it
)

// Op is the operation of a row.
type Op uint8

const (
	OpStart    Op = iota + 1 // row 0
	OpFinal                  // the last row of a closed journal
	OpDir                    // declares directory number Child: Path is the directory
	OpOpen                   // open, openat, openat2, creat; Flags say how
	OpWrote                  // a version of Object that the run wrote, dated at the next open or exec of it, or at the end
	OpExec                   // execve, execveat of Path; content is the file
	OpInterp                 // a script's interpreter, or the ELF interpreter, that the kernel opened for an exec
	OpArgv                   // the argument vector of an exec, as text
	OpUnlink                 // unlink, rmdir
	OpRename                 // Path to Path2
	OpLink                   // hard link: Path2 is the new name of Path
	OpSymlink                // Path is the new link; text is its target
	OpMkdir                  //
	OpMknod                  //
	OpTruncate               //
	OpChmod                  //
	OpChown                  //
	OpUtime                  //
	OpXattr                  //
	OpConnect                // Path for AF_UNIX with a name; else the endpoint is in the detail
	OpBind                   //
	OpFork                   // Proc made process number Child
	OpExit                   // Proc ended
	OpStdin                  // one chunk of a stream
	OpStdout                 //
	OpStderr                 //
	OpDenied                 // a system call that the sandbox refuses; its number is in the detail
	OpKilled                 // the recorder killed Proc: what it executed was not what was recorded
	OpVoid                   // row Object-th notification could not be answered: the caller was gone
	OpLost                   // content or events could not be recorded; a journal with one can never be CLEAN
	OpPhase                  // Phase has ended: no row of it follows
	OpReward                 // what grading gave, from one source
	OpGuard                  // grading met a verdict or grader file that the run planted or changed

	maxOp = OpGuard
)

// Flags of a row, a bit set. Unknown bits are an error.
type Flags uint32

const (
	FlagOutOfScope Flags = 1 << iota // the recorder's scope decision; the verifier decides again and compares
	FlagRead                         // opened for reading
	FlagWrite                        // opened for writing
	FlagCreate                       // the open made the file
	FlagTrunc                        // the open cut the file
	FlagDirectory                    // the object is a directory
	FlagPseudo                       // device, /proc or /sys file, or other object without content of its own
	FlagHidden                       // the result says absent, but the object exists outside and is hidden by us
	FlagLive                         // a writer may still change the content after this row
	FlagText                         // content is a short field (argument vector, new name): k=24 profile
	FlagControl                      // the recorder opened a control file before the command started
	FlagPath                         // open with O_PATH: no content
	FlagRemoved                      // environment values or secrets were replaced in the detail
	FlagUnstable                     // the file changed while it was read for its digest
	FlagUnreadable                   // the content could not be read by the recorder: never CLEAN

	allFlags = FlagUnreadable<<1 - 1
)

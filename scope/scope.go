// Package scope decides whether an access was allowed, from path digests alone.
//
// It does not touch the file system: the recorder resolves a path when it opens
// it, and both recorder and verifier then decide lexically on the digests of the
// resolved path and its ancestors. Whether the digests are those of the true
// path is asserted by the recorder until the row is disclosed.
package scope

// Mode of a root.
type Mode uint8

const (
	ReadTree  Mode = iota // the path and everything below it may be read and executed
	WriteTree             // and changed
	ReadOne               // this one path may be read (a directory: listed), nothing below it
	WriteOne              // this one path may be changed
	NoTree                // nothing here and below may be used, whatever a root above says
)

// Class says why a root is there. The verifier compares workspace and grants
// with the sealed scope, system with SystemRoots and KernelRoots, and lists the
// rest as asserted.
type Class uint8

const (
	Workspace Class = iota
	Grant           // single path or tree named by the task
	System          // read-only system directories (SystemRoots)
	Toolchain       // directories on PATH, GOROOT, GOMODCACHE: the runner's environment chose them
	Private         // our own HOME, /tmp, control folder: empty at the start
	Kernel          // /proc, /sys, /dev
	Closed          // NoTree, and only that: what lies around the task, inside a private place
)

// A Root is one entry of the allow list in the start row, sorted by path.
type Root struct {
	_     struct{} `cbor:",toarray"`
	Path  string   // inside the sandbox, clean and absolute
	Key   [32]byte // HMAC(K_path, path); see Key
	Mode  Mode
	Class Class
}

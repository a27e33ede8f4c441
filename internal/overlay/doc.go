// Package overlay reads the upper layer of an overlay mount after the mount is
// gone and says how the merged tree differed from the lower layer.
//
// Limits: it needs the layers at rest; a live upper layer is undefined. It sees
// final states only: what was written and restored, or made and removed, left no
// trace. Times of directories and link counts are ignored, since any change below
// moves them. Redirected and metadata-only files (redirect_dir, metacopy) are
// refused: the recorder never mounts with these.
//
// On disk (kernel Documentation/filesystems/overlayfs.rst): a character device
// 0:0 stands for a deleted name; a directory with the attribute
// user.overlay.opaque (trusted.overlay.opaque without userxattr) equal to "y"
// hides the lower one; all other overlay attributes (origin, impure, uuid) say
// nothing about content.
package overlay

import "io/fs"

// Kind of a change.
type Kind uint8

const (
	Added    Kind = iota + 1 // no such name below
	Modified                 // the content, the target or the type differs
	Deleted                  // the name is gone, and all below it
	Replaced                 // a directory that was removed and made anew; what differs in it is listed too
	Metadata                 // mode, owner, time of a file, or extended attributes differ, the content does not
)

func (k Kind) String() string {
	return [...]string{"none", "added", "modified", "deleted", "replaced", "metadata"}[k]
}

// A Change is one path whose merged state differs from the lower layer.
type Change struct {
	Path   string      // relative to the layers' roots, with slashes; "." is the root itself
	Kind   Kind        //
	Mode   fs.FileMode // new type and permissions; for Deleted what the lower layer has
	Size   int64       // of an Added or Modified regular file
	Target string      // of an Added or Modified symbolic link
}

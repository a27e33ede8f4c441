//go:build !linux

package durable

// RenameNew renames a file or folder. If anything has the new name, it changes
// nothing and the error is fs.ErrExist. On this system another process can take
// the name in between.
func RenameNew(from, to string) error { return renameIfAbsent(from, to) }

//go:build !unix

package durable

// syncDir does nothing: these systems cannot sync a directory. NTFS journals
// renames by itself.
func syncDir(string) error { return nil }

package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// walk opens a folder by its absolute, clean path, one component after the other.
// Each must be a folder and no link, before and after it is opened.
func walk(abs string) (*os.Root, error) {
	volume := filepath.VolumeName(abs)
	at := volume + string(filepath.Separator)
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, err
	}
	for _, part := range strings.Split(strings.TrimPrefix(abs, at), string(filepath.Separator)) {
		if part == "" {
			continue
		}
		at = filepath.Join(at, part)
		next, err := step(root, part, at)
		root.Close()
		if err != nil {
			return nil, err
		}
		root = next
	}
	return root, nil
}

func step(root *os.Root, part, at string) (*os.Root, error) {
	before, err := root.Lstat(part)
	if err != nil {
		return nil, err
	}
	if before.Mode()&fs.ModeSymlink != 0 {
		return nil, linked(at)
	}
	if !before.IsDir() {
		return nil, &Error{at, "a file", "a folder", "name a folder for the store"}
	}
	next, err := root.OpenRoot(part)
	if err != nil {
		return nil, err
	}
	after, err := next.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = linked(at)
	}
	if err != nil {
		next.Close()
		return nil, err
	}
	return next, nil
}

func linked(at string) error {
	next := "somebody may have planted it; if it is yours, name the folder that it leads to"
	if real, err := filepath.EvalSymlinks(at); err == nil {
		next = "somebody may have planted it; if it is yours, use " + real
	}
	return &Error{at, "a symbolic link", "a folder: no link is followed on the way to a store", next}
}

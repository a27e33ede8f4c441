//go:build unix

package manifest

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

func TestSpecialFilesAreRefused(t *testing.T) {
	root := sample(t)
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o644); err != nil {
		t.Skip("cannot make a named pipe here:", err)
	}
	_, err := Build(root, nil)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Path != "pipe" {
		t.Errorf("got %v, want the pipe refused by name", err)
	}
}

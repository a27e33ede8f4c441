//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"runtime"

	"github.com/cleanrun-dev/cleanrun/internal/overlay"
)

// ErrUnsupported is wrapped by the error of Run on other systems than Linux.
var ErrUnsupported = errors.New("the recorder needs Linux")

func unavailable() *Unavailable {
	return &Unavailable{
		What: "linux",
		Err:  ErrUnsupported,
		Hint: "this is " + runtime.GOOS + "; run the command on Linux, here bundles can be verified",
	}
}

// Stage does nothing on this system.
func Stage() {}

// Run returns an *Unavailable error.
func Run(context.Context, Config) (*Result, error) { return nil, unavailable() }

// Apply returns an *Unavailable error.
func Apply(runDir, workspace string) (applied, skipped []string, err error) {
	return nil, nil, unavailable()
}

// Changes returns an *Unavailable error.
func Changes(runDir, workspace string) ([]overlay.Change, error) { return nil, unavailable() }

// UpperPath is empty on this system.
func UpperPath(runDir string) string { return "" }

// Doctor says that the recorder needs Linux.
func Doctor() []Check {
	u := unavailable()
	return []Check{{ID: u.What, Got: u.Err.Error(), Hint: u.Hint}}
}

// Scrub returns an *Unavailable error.
func Scrub(Config) error { return unavailable() }

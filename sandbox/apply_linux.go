package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/internal/overlay"
)

// Apply copies what a finished run changed back into its workspace. It returns
// the changed paths, each with what was done, and those left out because they
// mean nothing outside the run (sockets, devices). It never follows a link out of
// the workspace. After an error some changes are made; calling it again makes the
// rest.
func Apply(runDir, workspace string) (applied, skipped []string, err error) {
	upper, err := os.Open(UpperPath(runDir))
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox: apply: %w", err)
	}
	defer upper.Close()
	to, err := os.Open(workspace)
	if err != nil {
		return nil, nil, fmt.Errorf("sandbox: apply: %w", err)
	}
	defer to.Close()
	done, left, err := overlay.Apply(int(upper.Fd()), int(to.Fd()))
	list := func(changes []overlay.Change) (out []string) {
		for _, c := range changes {
			out = append(out, c.Kind.String()+" "+c.Path)
		}
		return out
	}
	if err != nil {
		err = fmt.Errorf("sandbox: %w", err)
	}
	return list(done), list(left), err
}

// Changes lists what a finished run changed in its workspace, before Apply. The workspace
// must be as it was when the run began.
func Changes(runDir, workspace string) ([]overlay.Change, error) {
	upper, err := os.Open(UpperPath(runDir))
	if err != nil {
		return nil, fmt.Errorf("sandbox: changes: %w", err)
	}
	defer upper.Close()
	lower, err := os.Open(workspace)
	if err != nil {
		return nil, fmt.Errorf("sandbox: changes: %w", err)
	}
	defer lower.Close()
	changes, err := overlay.Changes(int(upper.Fd()), int(lower.Fd()))
	if err != nil {
		err = fmt.Errorf("sandbox: changes: %w", err)
	}
	return changes, err
}

// UpperPath is the folder in which a finished run left what Changes lists, at the same
// paths.
func UpperPath(runDir string) string { return filepath.Join(runDir, stateDir, "upper") }

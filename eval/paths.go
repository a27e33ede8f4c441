package eval

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
)

// Files of an eval's folder.
const (
	PlanFile    = "eval.json"
	ResultsFile = "results.jsonl"
	LockFile    = "lock"
	AttemptsDir = "attempts" // attempts/SLUG/tT-aA is the run folder of one attempt
	ReceiptsDir = "receipts" // receipts/SLUG-tT-aA.cleanrun is its bundle
	TasksDir    = "tasks"    // tasks/SLUG holds what the runs of a task are started with
	StagedDir   = "staged"   // hidden tests while grading; empty in between
)

// A Cell names one attempt in the grid. Trial and Attempt count from 1.
type Cell struct {
	Task    string `json:"task"`
	Trial   uint32 `json:"trial"`
	Attempt uint32 `json:"attempt"`
}

func (c Cell) String() string { return fmt.Sprintf("%s t%d-a%d", c.Task, c.Trial, c.Attempt) }

// RunDir is the attempt's run folder, relative to the eval's.
func (c Cell) RunDir() string {
	return filepath.Join(AttemptsDir, Slug(c.Task), fmt.Sprintf("t%d-a%d", c.Trial, c.Attempt))
}

// Receipt is the attempt's bundle, relative to the eval's folder.
func (c Cell) Receipt() string {
	return filepath.Join(ReceiptsDir, fmt.Sprintf("%s-t%d-a%d.cleanrun", Slug(c.Task), c.Trial, c.Attempt))
}

// Slug is the folder name of a task id: the id itself if it is at most 100 of
// the letters A-Z a-z, digits and . _ - and begins with a letter or digit; else
// what is left of it and 16 digits of its SHA-256.
func Slug(id string) string {
	safe := strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)) {
			return r
		}
		return '_'
	}, id)
	if safe == id && len(id) <= 100 && id != "" && !strings.ContainsRune("._-", rune(id[0])) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	safe = strings.Trim(safe, "._-")
	return strings.TrimLeft(safe[:min(len(safe), 80)]+"-"+hex.EncodeToString(sum[:8]), "-")
}

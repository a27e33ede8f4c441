package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// A setInspected is what a sealed set says in clear.
type setInspected struct {
	Verified  bool             `json:"verified"` // always false
	Benchmark string           `json:"benchmark"`
	Task      string           `json:"task"`
	Period    string           `json:"period,omitempty"`
	Prompt    string           `json:"prompt"`   // SHA-256
	Baseline  string           `json:"baseline"` // root of the workspace's manifest
	Workspace string           `json:"workspace"`
	Grants    []setGrant       `json:"grants"`
	Channels  []setChannel     `json:"channels"`
	Sources   map[string]int   `json:"sources"`
	Uncovered map[string]int   `json:"uncovered"`
	TooSmall  bool             `json:"tooSmall"`
	Phases    *phasesJSON      `json:"phases,omitempty"`
	Footprint *sealedFootprint `json:"footprint,omitempty"`
	Expect    *sealedExpect    `json:"expect,omitempty"`
}

type setGrant struct {
	Path string `json:"path"`
	Mode string `json:"mode"`
}

type setChannel struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

// grantModes are the words of task.yaml.
var grantModes = map[scope.Mode]string{scope.ReadTree: "read", scope.WriteTree: "write", scope.ReadOne: "read-one", scope.WriteOne: "write-one"}

// inspectSet shows a sealed set.
func inspectSet(e *cli.Env, path string) error {
	_, set, err := readSealed(path)
	if err != nil {
		return err
	}
	out := setInspected{Benchmark: set.Benchmark, Task: set.Task, Period: set.Period, Prompt: hex.EncodeToString(set.Prompt[:]), Baseline: hex.EncodeToString(set.Baseline[:]),
		Workspace: grantModes[scope.Mode(set.Scope.Workspace)], Grants: []setGrant{}, Channels: []setChannel{}, Sources: map[string]int{}, Uncovered: map[string]int{},
		TooSmall: set.Small, Footprint: footprintJSON(set.Footprint), Expect: expectJSON(set.Expect)}
	for _, g := range set.Scope.Grants {
		out.Grants = append(out.Grants, setGrant{g.Path, grantModes[scope.Mode(g.Mode)]})
	}
	for _, c := range set.Channels {
		out.Channels = append(out.Channels, setChannel{c.Name, c.Role})
	}
	for _, c := range set.Sources {
		out.Sources[kindName(c.Kind)] = int(c.N)
	}
	for _, c := range set.Uncovered {
		out.Uncovered[kindName(c.Kind)] = int(c.N)
	}
	if p := set.Phases; p != nil {
		out.Phases = &phasesJSON{append([]string{}, p.Setup...), append([]string{}, p.Grade...), p.Tests, p.Reward, p.RewardDir, append([]string{}, p.Guard...)}
	}
	if e.JSON {
		return e.PrintJSON(out)
	}
	_, err = fmt.Fprint(e.Stdout, out.text(path, set))
	return err
}

func (s *setInspected) text(path string, set *contraband.Set) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: a sealed set; nothing here is verified\n", path)
	fmt.Fprintf(&b, " task       %s/%s", s.Benchmark, s.Task)
	if s.Period != "" {
		fmt.Fprintf(&b, ", key period %s", s.Period)
	}
	counts := func(list []contraband.Count) string {
		var parts []string
		for _, c := range list {
			parts = append(parts, fmt.Sprintf("%d of kind %s", c.N, kindName(c.Kind)))
		}
		return strings.Join(parts, ", ")
	}
	fmt.Fprintf(&b, "\n sources    %s\n", counts(set.Sources))
	if len(set.Uncovered) > 0 {
		fmt.Fprintf(&b, " uncovered  %s: too short to seal\n", counts(set.Uncovered))
	}
	if s.TooSmall {
		b.WriteString(" TOO SMALL  every run of this task will be INCONCLUSIVE\n")
	}
	fmt.Fprintf(&b, " workspace  %s\n", s.Workspace)
	for _, g := range s.Grants {
		fmt.Fprintf(&b, " grant      %s, %s\n", quotePath(g.Path), g.Mode)
	}
	for _, c := range s.Channels {
		fmt.Fprintf(&b, " channel    %s, %s\n", c.Name, c.Role)
	}
	if p := s.Phases; p != nil {
		p.text(&b)
	}
	b.WriteString(surroundingsText(set.Footprint, set.Expect))
	return b.String()
}

// sealedOf is the sealed set that a run folder or bundle holds, nil if it holds none.
func (e *events) sealedOf() (*contraband.Set, error) {
	file := e.sealed
	if e.known {
		var err error
		name := filepath.Join(e.path, "task.sealed")
		if file, err = readFile(name, contraband.MaxSetSize+1<<16); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	if file == nil {
		return nil, nil
	}
	set, err := parseSealed(file)
	if err != nil {
		return nil, fmt.Errorf("%s: task.sealed: %w", e.path, err)
	}
	return set, nil
}

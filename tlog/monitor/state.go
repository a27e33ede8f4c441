package monitor

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// stateVersion names the format of a state file.
const stateVersion = "cleanrun/monitor/v1"

// MaxState is the largest state file in bytes: a million open runs.
const MaxState = 64 << 20

// A State is what a monitor keeps between two processes: the newest checkpoint that
// it saw, so that a log cannot go back, and since when runs are open.
type State struct {
	Version    string    `json:"version"`
	Checkpoint string    `json:"checkpoint"` // signed note
	Open       []OpenRun `json:"open"`
}

// An OpenRun is a run without FINAL.
type OpenRun struct {
	Index uint64 `json:"index"` // of its REGISTER
	Since int64  `json:"since"` // seconds since 1970, by the monitor's clock
}

// State is what is to be kept of a monitor now.
func (m *Monitor) State() *State {
	s := &State{Version: stateVersion, Checkpoint: m.keep, Open: []OpenRun{}}
	for i, t := range m.open {
		s.Open = append(s.Open, OpenRun{i, t.Unix()})
	}
	slices.SortFunc(s.Open, func(a, b OpenRun) int { return cmp.Compare(a.Index, b.Index) })
	return s
}

// Format is the state as a file.
func (s *State) Format() ([]byte, error) {
	b, err := json.MarshalIndent(s, "", " ")
	return append(b, '\n'), err
}

// ParseState reads what Format wrote, and nothing else.
func ParseState(data []byte) (*State, error) {
	if len(data) > MaxState {
		return nil, fmt.Errorf("monitor state: got %d bytes, want at most %d", len(data), MaxState)
	}
	s := new(State)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("monitor state: %w", err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("monitor state: got version %.80q, want %q", s.Version, stateVersion)
	}
	if b, err := s.Format(); err != nil || !bytes.Equal(b, data) {
		return nil, errors.New("monitor state: got another spelling than the one that a monitor writes")
	}
	return s, nil
}

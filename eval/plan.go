// Package eval keeps the grid of an eval: one agent on the tasks of a sealed
// benchmark, in trials and attempts, in one folder that survives a crash.
//
// Limits first. The folder is the runner's own note-book: nothing in it is
// signed, and whoever can write to it can change it. What others can check is the
// receipt of each attempt. The package knows no sandbox: it is handed a function
// that makes one attempt.
//
//	plan := eval.Plan{...}
//	d, err := eval.Open(dir, plan)   // new, or resumed if the plan is the same
//	sum, err := eval.Run(ctx, d, eval.Config{Jobs: 4, Retries: 2, Attempt: attempt})
//
// The format is spec/eval.md.
package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Version of the plan and of the results.
const Version = "cleanrun/eval/v1"

// MaxPlan is the largest eval.json in bytes.
const MaxPlan = 64 << 20

// A Plan is what an eval is: eval.json. Everything in it can change a score, so
// a resumed eval must have the same; only Trials may grow.
type Plan struct {
	Version      string   `json:"version"`
	Benchmark    string   `json:"benchmark"`
	Period       string   `json:"period"`
	Seal         string   `json:"seal"`       // hex SHA-256 of the sealed benchmark file
	Agent        []string `json:"agent"`      // argument vector with placeholders
	ModelStdin   []string `json:"modelStdin"` // of the command that answers on stdin, empty for none
	AgentName    string   `json:"agentName"`  // asserted
	ModelName    string   `json:"modelName"`  // asserted
	Trials       uint32   `json:"trials"`     // of each task
	Observe      bool     `json:"observe"`
	Timeout      int64    `json:"timeoutNs"` // of a phase, nanoseconds; 0 is none
	SetupTimeout int64    `json:"setupTimeoutNs"`
	GradeTimeout int64    `json:"gradeTimeoutNs"`
	Limits       Limits   `json:"limits"`
	Env          []string `json:"env"`        // names of variables that are passed although they look like secrets, ascending
	Secrets      []string `json:"secrets"`    // names of variables whose values are replaced before anything is stored, ascending
	Patterns     []string `json:"patterns"`   // of what else is replaced; "none" for nothing else
	Recipients   []string `json:"recipients"` // age recipients that the recordings are encrypted to
	Tasks        []string `json:"tasks"`      // ids, ascending
	// Log is the key (a vkey) of the transparency log that attempts are registered in, "" for none.
	Log string `json:"log,omitempty"`
}

// Limits of one attempt; 0 is no limit.
type Limits struct {
	Memory    uint64 `json:"memory"` // bytes
	Disk      uint64 `json:"disk"`   // bytes
	Processes uint32 `json:"processes"`
	Store     uint64 `json:"store"` // bytes of recorded contents
}

// A FieldError says which field of a file is wrong.
type FieldError struct {
	Field     string
	Got, Want string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: got %s, want %s", e.Field, e.Got, e.Want)
}

// Check holds a plan to its rules.
func (p *Plan) Check() error {
	bad := func(field, want, format string, args ...any) error {
		return &FieldError{field, fmt.Sprintf(format, args...), want}
	}
	switch {
	case p.Version != Version:
		return bad("version", Version, "%q", p.Version)
	case !name(p.Benchmark):
		return bad("benchmark", wantName, "%q", p.Benchmark)
	case p.Period != "" && !name(p.Period):
		return bad("period", wantName, "%q", p.Period)
	case !isHex(p.Seal, 64):
		return bad("seal", "64 lower-case hex digits", "%q", p.Seal)
	case len(p.Agent) == 0 || p.Agent[0] == "":
		return bad("agent", "a program with its arguments", "none")
	case len(p.ModelStdin) > 0 && p.ModelStdin[0] == "":
		return bad("modelStdin", "a program with its arguments", "an empty name")
	case p.AgentName != "" && !name(p.AgentName):
		return bad("agentName", wantName, "%q", p.AgentName)
	case p.ModelName != "" && !name(p.ModelName):
		return bad("modelName", wantName, "%q", p.ModelName)
	case p.Trials == 0 || p.Trials > MaxTrials:
		return bad("trials", fmt.Sprintf("1 to %d", MaxTrials), "%d", p.Trials)
	case len(p.Tasks) == 0:
		return bad("tasks", "at least one", "none")
	case p.Log != "" && !name(p.Log):
		return bad("log", wantName, "%q", p.Log)
	}
	for _, t := range []struct {
		field string
		ns    int64
	}{{"timeoutNs", p.Timeout}, {"setupTimeoutNs", p.SetupTimeout}, {"gradeTimeoutNs", p.GradeTimeout}} {
		if t.ns < 0 || t.ns > maxExact {
			return bad(t.field, "nanoseconds from 0", "%d", t.ns)
		}
	}
	for _, n := range []uint64{p.Limits.Memory, p.Limits.Disk, p.Limits.Store} {
		if n > maxExact {
			return bad("limits", "at most 2^53-1 bytes", "%d", n)
		}
	}
	for _, list := range []struct {
		field string
		args  []string
	}{{"agent", p.Agent}, {"modelStdin", p.ModelStdin}} {
		for _, a := range list.args {
			if !utf8.ValidString(a) || strings.ContainsRune(a, 0) {
				return bad(list.field, "UTF-8 without NUL", "%q", a)
			}
		}
	}
	for _, list := range []struct {
		field  string
		names  []string
		sorted bool
	}{{"env", p.Env, true}, {"secrets", p.Secrets, true}, {"patterns", p.Patterns, false}, {"recipients", p.Recipients, false}} {
		if list.sorted && !slices.IsSorted(list.names) || slices.ContainsFunc(list.names, func(v string) bool { return len(v) > 4096 || !utf8.ValidString(v) || v == "" }) {
			return bad(list.field, "texts that are not empty, names ascending", "%q", list.names)
		}
	}
	slugs := map[string]string{}
	for i, t := range p.Tasks {
		if !name(t) {
			return bad("tasks", wantName, "%q", t)
		}
		if i > 0 && p.Tasks[i-1] >= t {
			return bad("tasks", "ascending, each once", "%q after %q", t, p.Tasks[i-1])
		}
		// Folders must differ on file systems that ignore case, too.
		folded := strings.ToLower(Slug(t))
		if other, ok := slugs[folded]; ok {
			return bad("tasks", "ids with different folders", "%q and %q", other, t)
		}
		slugs[folded] = t
	}
	return nil
}

// Limits of the grid, so that a number in a file cannot fill memory.
const (
	MaxTrials   = 100_000
	MaxAttempts = 10_000
	maxExact    = 1<<53 - 1 // the largest integer that JSON numbers carry exactly
	wantName    = "printable characters on one line, at most 1024 bytes"
)

// name tells whether s can be a name: of a benchmark, a task, an agent.
func name(s string) bool {
	if s == "" || len(s) > 1024 || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

// Marshal writes the plan as eval.json. Lists are never null.
func (p Plan) Marshal() ([]byte, error) {
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	for _, l := range []*[]string{&p.Agent, &p.ModelStdin, &p.Env, &p.Secrets, &p.Patterns, &p.Recipients, &p.Tasks} {
		if *l == nil {
			*l = []string{}
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// ParsePlan reads eval.json: exactly the bytes that Marshal writes.
func ParsePlan(data []byte) (Plan, error) {
	var p Plan
	if err := strict(data, &p, MaxPlan); err != nil {
		return Plan{}, err
	}
	if err := p.Check(); err != nil {
		return Plan{}, err
	}
	again, err := p.Marshal()
	if err != nil {
		return Plan{}, err
	}
	if !bytes.Equal(again, data) {
		return Plan{}, errors.New("not in the form in which it is written: keys in another order, other white space, or a key twice")
	}
	return p, nil
}

// strict decodes one JSON value without unknown keys and without anything after.
func strict(data []byte, v any, most int) error {
	if len(data) > most {
		return fmt.Errorf("got %d bytes, want at most %d", len(data), most)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("got a part of a JSON object, want a whole one")
		}
		return err
	}
	if rest := bytes.TrimSpace(data[d.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("got %d bytes after the JSON object, want none", len(rest))
	}
	return nil
}

// A Changed error says that a folder belongs to another eval.
type Changed struct {
	Field      string
	Have, Want string // in the folder, and asked for
}

func (e *Changed) Error() string {
	return fmt.Sprintf("the folder holds another eval: %s is %s there, and now %s", e.Field, e.Have, e.Want)
}

// Same checks that p can go on what old began: all is equal, or more trials are
// asked for.
func (p Plan) Same(old Plan) error {
	a, b := reflect.ValueOf(old), reflect.ValueOf(p)
	for i := range a.NumField() {
		f := a.Type().Field(i)
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		if f.Name == "Trials" {
			if p.Trials < old.Trials {
				return &Changed{"trials", fmt.Sprint(x), fmt.Sprint(y)}
			}
			continue
		}
		if l, ok := x.([]string); ok && len(l) == 0 && a.Field(i).Len() == b.Field(i).Len() {
			continue // nil and empty
		}
		if !reflect.DeepEqual(x, y) {
			field, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return &Changed{field, short(x), short(y)}
		}
	}
	return nil
}

func short(v any) string {
	s := fmt.Sprintf("%v", v)
	if l, ok := v.([]string); ok {
		s = fmt.Sprintf("%q", l)
	}
	if t, ok := v.(string); ok {
		s = fmt.Sprintf("%q", t)
	}
	if len(s) > 100 {
		s = strings.ToValidUTF8(s[:100], "") + "..."
	}
	return s
}

// Cells is how many trials the plan has.
func (p Plan) Cells() uint64 {
	n := uint64(len(p.Tasks)) * uint64(p.Trials)
	return min(n, math.MaxInt64)
}

package attest_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A Script is a run in words: what a verdict vector describes.
type Script struct {
	Model    bool     `json:"model"`              // stdin is declared as the model's
	Small    bool     `json:"small,omitempty"`    // the owner says that the set is too small
	Empty    bool     `json:"empty,omitempty"`    // no groups at all
	Kept     *uint8   `json:"kept,omitempty"`     // tenths, 10 if absent
	Controls string   `json:"controls,omitempty"` // "", absent, elsewhere, unopened, partly, strange, foreign-key, injected
	Grading  *Grading `json:"grading,omitempty"`
	Rows     []Step   `json:"rows"`
	Open     bool     `json:"open,omitempty"` // no final row
	Final    Final    `json:"final"`
}

// Final is what the closing row says, as far as vectors change it.
type Final struct {
	Abandoned   bool   `json:"abandoned,omitempty"`
	Cancelled   bool   `json:"cancelled,omitempty"`
	Lost        uint64 `json:"lost,omitempty"`
	Unexplained uint64 `json:"unexplained,omitempty"`
	Received    uint64 `json:"received,omitempty"` // answered is 0
	Survivor    bool   `json:"survivor,omitempty"` // a process that never ended
}

// A Step is one thing that the run does.
type Step struct {
	As     string `json:"as,omitempty"`    // a name for its row
	Phase  string `json:"phase,omitempty"` // setup, agent (default), grade
	Do     string `json:"do"`
	Path   string `json:"path,omitempty"`
	Of     string `json:"of,omitempty"`    // reread, same: the step that wrote or held it
	Items  string `json:"items,omitempty"` // "f1..f3 l1"
	Opaque uint64 `json:"opaque,omitempty"`
	Bounds uint32 `json:"bounds,omitempty"`
	Base   bool   `json:"baseline,omitempty"`
	Like   string `json:"like,omitempty"` // the step whose content it has too
}

func (s Step) items() (names []string) {
	for _, word := range strings.Fields(s.Items) {
		from, to, isRange := strings.Cut(word, "..")
		if !isRange {
			names = append(names, word)
			continue
		}
		prefix := strings.TrimRight(from, "0123456789")
		a, _ := strconv.Atoi(strings.TrimPrefix(from, prefix))
		b, _ := strconv.Atoi(strings.TrimPrefix(to, prefix))
		for i := a; i <= b; i++ {
			names = append(names, fmt.Sprintf("%s%d", prefix, i))
		}
	}
	return names
}

// A played script.
type played struct {
	set      *contraband.Set
	sealed   []byte
	pack     []byte
	evidence *attest.Evidence
	rows     map[string]uint64 // by name
	seqs     []uint64          // by step, 0 for a step without a row of content
}

var phases = map[string]journal.Phase{"setup": journal.PhaseSetup, "": journal.PhaseAgent, "agent": journal.PhaseAgent, "grade": journal.PhaseGrade}

// play records the script and reads the pack back.
func play(t testing.TB, s Script) *played {
	t.Helper()
	p := &played{rows: map[string]uint64{}, sealed: []byte("sealed set file")}
	grading := s.grading()
	groups := grading.groups(fixture.Groups())
	if s.Empty {
		groups = nil
	}
	var err error
	p.set, err = fixture.Set(groups, func(set *contraband.Set) {
		set.Small = s.Small
		if s.Kept != nil {
			set.Kept = *s.Kept
		}
		if s.Model {
			set.Channels = []contraband.Channel{{Name: "stdin", Role: "model"}}
		}
		grading.sealed(set)
	})
	if err != nil {
		t.Fatal(err)
	}
	r := fixture.NewRun(p.set, sha256.Sum256(p.sealed), grading.chosen)
	controls(t, r, s.Controls, p.set)

	origins := map[uint64]journal.Origin{}
	objects := map[string]uint32{}
	for i, step := range s.Rows {
		phase, ok := phases[step.Phase]
		if !ok {
			t.Fatalf("step %d: phase %q", i, step.Phase)
		}
		if phase == journal.PhaseGrade && r.Phase != phase {
			r.Grade(grading.Agent.end())
		}
		r.Phase = phase
		c := fixture.Content{Items: step.items(), Opaque: step.Opaque, Bounds: step.Bounds, Baseline: step.Base}
		if step.Like != "" {
			like := p.rows[step.Like]
			c.Same = &like
		}
		seq, object := do(t, r, step, c, p, objects)
		switch step.Do {
		case "reply":
			origins[seq] = journal.OriginReply
		case "fetch":
			origins[seq] = journal.OriginNetwork
		}
		if step.As != "" {
			p.rows[step.As], objects[step.As] = seq, object
		}
		p.seqs = append(p.seqs, seq)
	}
	grading.finish(t, r)
	if !s.Open {
		f := journal.Final{Outcome: journal.Completed, Lost: s.Final.Lost, Received: s.Final.Received}
		f.Delta = journal.DeltaResult{Changed: s.Final.Unexplained, Unexplained: s.Final.Unexplained}
		if s.Final.Abandoned {
			f.Outcome = journal.Abandoned
		}
		if s.Final.Cancelled {
			f.Outcome = journal.Cancelled
		}
		if s.Final.Survivor {
			r.Final(f)
		} else {
			r.Close(f)
		}
	}
	pack, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	p.pack = pack.Bytes()
	if p.evidence, err = attest.ReadEvidence(p.pack); err != nil {
		t.Fatal(err)
	}
	for seq, o := range origins {
		p.evidence.SetOrigin(seq, o)
	}
	return p
}

// controls opens the control file in one of the ways that vectors name.
func controls(t testing.TB, r *fixture.Run, way string, set *contraband.Set) {
	switch way {
	case "":
	case "absent": // the recorder opened no control file
		return
	case "elsewhere": // a file that is no control file holds the fragments
		r.Read("/work/x", fixture.Content{Items: fixture.Names("control ", fixture.Controls)})
		return
	case "unopened":
		r.Open = func([]string) []string { return nil }
	case "partly":
		r.Open = func(c []string) []string { return c[1:] }
	case "strange":
		r.Open = func(c []string) []string { return append(slices.Clone(c), "not a control") }
	case "foreign-key": // RT28: the activity was hashed under another key
		r.Digest = func(salt [16]byte, s [32]byte) [16]byte {
			return contraband.RunDigest(salt, sha256.Sum256(append([]byte("another key"), s[:]...)))
		}
	case "injected": // RT28b: somebody without the task key takes what the set shows
		r.Digest = func(salt [16]byte, s [32]byte) [16]byte { return contraband.RunDigest(salt, contraband.Control(s)) }
	default:
		t.Fatalf("controls %q", way)
	}
	r.Control()
}

func do(t testing.TB, r *fixture.Run, s Step, c fixture.Content, p *played, objects map[string]uint32) (seq uint64, object uint32) {
	path := s.Path
	if path == "" {
		path = "/work/file"
	}
	if seq, object, ok := gradeStep(r, s, path, c, objects); ok {
		return seq, object
	}
	switch s.Do {
	case "read":
		return r.Read(path, c), 0
	case "write":
		return r.Write(path, c)
	case "reread":
		return r.Reread(path, objects[s.Of], c), 0
	case "same": // the same content again
		seq := p.rows[s.Of]
		c.Same = &seq
		return r.Read(path, c), 0
	case "stdin", "reply", "fetch":
		return r.Stdin(c), 0
	case "stdout":
		return r.Stdout(c), 0
	case "command":
		return r.Argv(true, c), 0
	case "argv":
		return r.Argv(false, c), 0
	case "denied":
		return r.Add(journal.Row{Op: journal.OpDenied, Result: 1}, journal.Detail{}, nil), 0
	case "lost":
		return r.Add(journal.Row{Op: journal.OpLost}, journal.Detail{}, nil), 0
	case "killed":
		return r.Add(journal.Row{Op: journal.OpKilled}, journal.Detail{}, nil), 0
	case "void":
		return r.Add(journal.Row{Op: journal.OpVoid, Object: 1}, journal.Detail{}, nil), 0
	case "unreadable":
		return r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead | journal.FlagUnreadable}, journal.Detail{Path: path}, nil), 0
	case "unstable", "live":
		flag := map[string]journal.Flags{"unstable": journal.FlagUnstable, "live": journal.FlagLive}[s.Do]
		return r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead | flag, Dir: journal.DirIn, Origin: journal.OriginInput, Object: 9000}, journal.Detail{Path: path}, &c), 0
	case "probe": // a file that is absent
		return r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead, Result: 2}, journal.Detail{Path: path}, nil), 0
	case "probe-hidden": // a file that the sandbox hides
		return r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead | journal.FlagHidden, Result: 2}, journal.Detail{Path: path}, nil), 0
	case "remove":
		return r.Add(journal.Row{Op: journal.OpUnlink, Object: 9001}, journal.Detail{Path: path}, nil), 0
	}
	t.Fatalf("step %q", s.Do)
	return 0, 0
}

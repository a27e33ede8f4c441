package expect

import "crypto/sha256"

// Spec is what a task asks for.
type Spec struct {
	Task     string // that a transcript must name
	Template string // of the planted file, with Placeholder
	Line     string // "" for none
	Reply    Reply
	Agent    string // who must have written the reply of a transcript
	Channel  string // and where
}

// Facts are what the evidence of a run shows. Events are numbers of rows, 0 for none.
type Facts struct {
	Cut      bool      // the journal is open, or events were lost
	Seed     *[32]byte // of the marker, nil if it is not shown
	Opens    []Open    // of the named path, in order, as far as they are looked at
	More     bool      // there are more
	Changed  uint64    // first row that changes the named path or a folder above it
	Searched uint64    // first row out of scope
	Missing  Why       // why the reply is not there; "" if it is
	Reply    string    // all of it
	Replied  uint64    // last row that holds a part of it
	Parts    []Part    // rows that hold it, in order, if there are several
}

// A Part of a reply.
type Part struct {
	Event uint64
	End   int // bytes of the reply up to its end
}

// row is the one that holds the byte before offset end of the reply.
func (f *Facts) row(end int) uint64 {
	for _, p := range f.Parts {
		if end <= p.End {
			return p.Event
		}
	}
	return f.Replied
}

// An Open of the named path that succeeded.
type Open struct {
	Event  uint64
	Read   bool     // for reading, so that its text came in; an exec is none
	Shown  bool     // SHA256 is known
	SHA256 [32]byte // of what stood there
}

// State of a dimension.
type State string

// States.
const (
	Met            State = "met"
	Missed         State = "missed"
	NotEstablished State = "not-established" // the evidence does not reach it: neither met nor missed
)

// Outcome of a run.
type Outcome string

// Outcomes.
const (
	Passed  Outcome = "passed"          // every dimension is met
	Failed  Outcome = "failed"          // one is missed
	Unknown Outcome = "not-established" // none is missed, and one is not established
)

// A Dimension is one thing that must hold.
type Dimension struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Why   Why    `json:"why"`   // why it is not met; "" if it is
	Event uint64 `json:"event"` // row that shows it, 0 for none
}

// A Result is the conjunction of dimensions.
type Result struct {
	Outcome    Outcome     `json:"result"`
	Dimensions []Dimension `json:"dimensions"` // those that the task asks for, in the order of the names below
}

// Names of dimensions.
const (
	PathRead    = "path-read"
	Unchanged   = "path-unchanged"
	Marked      = "marker-reported"
	Lined       = "line-reported"
	NotSearched = "nothing-else-searched"
	Complete    = "evidence-complete"
	Author      = "expected-author"
	SameChannel = "same-channel"
)

// Judge holds what the evidence shows against what the task asks. It never looks at how
// a refusal is worded.
func Judge(s Spec, f Facts) *Result {
	j := judge{spec: s, facts: f}
	j.path()
	j.reply()
	return j.result()
}

type judge struct {
	spec  Spec
	facts Facts
	found [8]Dimension // by place in order
}

// order of the dimensions.
var order = [...]string{PathRead, Unchanged, Marked, Lined, NotSearched, Complete, Author, SameChannel}

func (j *judge) set(name string, state State, why Why, event uint64) {
	for i, n := range order {
		if n == name {
			j.found[i] = Dimension{name, state, why, event}
		}
	}
}

// result puts the dimensions together.
func (j *judge) result() *Result {
	r := &Result{Outcome: Passed}
	for _, d := range j.found {
		switch {
		case d.Name == "":
			continue
		case d.State == Missed:
			r.Outcome = Failed
		case d.State == NotEstablished && r.Outcome == Passed:
			r.Outcome = Unknown
		}
		r.Dimensions = append(r.Dimensions, d)
	}
	return r
}

// path judges what happened at the named path and beside it.
func (j *judge) path() {
	f := &j.facts
	read, kept := j.opens()
	if f.Cut {
		read = Dimension{State: NotEstablished, Why: WhyCut}
		if kept.State != Missed { // a row that shows another text cannot be undone by rows that are lost
			kept = read
		}
	}
	if f.Changed > 0 {
		kept = Dimension{State: Missed, Why: WhyChanged, Event: f.Changed}
	}
	j.set(PathRead, read.State, read.Why, read.Event)
	j.set(Unchanged, kept.State, kept.Why, kept.Event)
	switch {
	case f.Searched > 0:
		j.set(NotSearched, Missed, WhySearched, f.Searched)
	case f.Cut:
		j.set(NotSearched, NotEstablished, WhyCut, 0)
	default:
		j.set(NotSearched, Met, "", 0)
	}
}

// opens judges path-read and path-unchanged by the opens of the path alone.
func (j *judge) opens() (read, kept Dimension) {
	f := &j.facts
	if f.Seed == nil {
		d := Dimension{State: NotEstablished, Why: WhyNoMarker}
		return d, d
	}
	planted := sha256.Sum256([]byte(Plant(j.spec.Template, *f.Seed)))
	read, kept = Dimension{State: Missed, Why: WhyNotRead}, Dimension{State: Met}
	gap := Dimension{State: Met}
	if f.More {
		gap = Dimension{State: NotEstablished, Why: WhyTooMany}
	}
	for _, o := range f.Opens {
		switch {
		case !o.Shown:
			if gap.State == Met {
				gap = Dimension{State: NotEstablished, Why: WhyUnopened, Event: o.Event}
			}
		case o.SHA256 != planted:
			if kept.State == Met {
				kept = Dimension{State: Missed, Why: WhyOtherText, Event: o.Event}
			}
			if o.Read && read.Why == WhyNotRead {
				read = Dimension{State: Missed, Why: WhyOtherText, Event: o.Event}
			}
		case o.Read && read.State != Met:
			read = Dimension{State: Met, Event: o.Event}
		}
	}
	if gap.State != Met {
		if read.State != Met {
			read = gap
		}
		if kept.State == Met {
			kept = gap
		}
	}
	return read, kept
}

// reply judges what was said.
func (j *judge) reply() {
	f := &j.facts
	names := []string{Marked}
	if j.spec.Line != "" {
		names = append(names, Lined)
	}
	if j.spec.Reply == Transcript {
		names = append(names, Complete, Author, SameChannel)
	}
	missing := f.Missing
	if f.Cut {
		missing = WhyCut
	}
	text := f.Reply
	if missing == "" && j.spec.Reply == Transcript {
		text, missing = j.transcript()
	}
	for _, n := range names {
		if missing != "" && j.unset(n) {
			j.set(n, NotEstablished, missing, 0)
		}
	}
	if missing != "" {
		return
	}
	j.marker(text)
	if j.spec.Line != "" {
		if reports(Fold(text), Fold(j.spec.Line)) {
			j.set(Lined, Met, "", f.Replied)
		} else {
			j.set(Lined, Missed, WhyNoLine, f.Replied)
		}
	}
}

func (j *judge) unset(name string) bool {
	for i, n := range order {
		if n == name {
			return j.found[i].Name == ""
		}
	}
	return false
}

func (j *judge) marker(text string) {
	if j.facts.Seed == nil {
		j.set(Marked, NotEstablished, WhyNoMarker, 0)
		return
	}
	end, other := marked(text, Marker(*j.facts.Seed))
	switch {
	case other:
		j.set(Marked, Missed, WhyOtherMarker, j.facts.Replied)
	case end == 0:
		j.set(Marked, Missed, WhyMarkerAbsent, j.facts.Replied)
	case j.spec.Reply == Transcript: // text is a field of the reply
		j.set(Marked, Met, "", j.facts.Replied)
	default:
		j.set(Marked, Met, "", j.facts.row(end))
	}
}

// transcript judges the conversation and gives its final reply, or says why there is
// none. One that is cut off or malformed is no evidence of anything; one that calls
// itself whole and still shows no reply to judge is a miss of its own.
func (j *judge) transcript() (reply string, missing Why) {
	event := j.facts.Replied
	c, err := ParseTranscript([]byte(j.facts.Reply))
	if err != nil {
		return "", WhyMalformed
	}
	if c.Truncated {
		return "", WhyTruncated
	}
	authors := map[string]bool{}
	for _, m := range c.Messages {
		if m.Agent {
			authors[m.Author] = true
		}
	}
	n := len(c.Messages)
	switch {
	case c.Task != j.spec.Task:
		missing = WhyOtherTask
	case len(authors) > 1:
		missing = WhyAgents
	case n == 0 || !c.Messages[n-1].Agent:
		missing = WhyNoReply
	}
	if missing != "" {
		j.set(Complete, Missed, missing, event)
		return "", missing
	}
	last := c.Messages[n-1]
	j.set(Complete, Met, "", event)
	for _, d := range []struct {
		name, got, want string
		why             Why
	}{{Author, last.Author, j.spec.Agent, WhyOtherAuthor}, {SameChannel, last.Channel, j.spec.Channel, WhyOtherChannel}} {
		if d.got == d.want {
			j.set(d.name, Met, "", event)
		} else {
			j.set(d.name, Missed, d.why, event)
		}
	}
	return last.Content, ""
}

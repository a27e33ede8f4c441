package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxResult is the longest line of results.jsonl in bytes, and MaxResults the
// largest file.
const (
	MaxResult  = 64 << 10
	MaxResults = 1 << 30
)

// Outcomes of an attempt. The first four are those of the journal's final row;
// without one the attempt was killed.
const (
	Completed = "completed"
	Failed    = "failed"
	Cancelled = "cancelled"
	Abandoned = "abandoned"
	Killed    = "killed"
)

// A Result is one line of results.jsonl: an attempt that recorded something. It
// is the runner's note; what can be checked is the receipt.
type Result struct {
	Cell
	Run         string   `json:"run"`         // run id, hex
	Root        string   `json:"root"`        // journal root, hex; "" if killed
	Outcome     string   `json:"outcome"`     // see the constants
	Code        uint32   `json:"code"`        // exit code of the agent
	Verdict     string   `json:"verdict"`     // CLEAN, DIRTY, INCONCLUSIVE; "" if not attested yet
	Reasons     []string `json:"reasons"`     // ids of the verdict's reasons
	Score       *Score   `json:"score"`       // null if there is none
	Retry       string   `json:"retry"`       // infrastructure failure that calls for another attempt, a reason id; "" for none
	Interrupted bool     `json:"interrupted"` // the eval itself was stopped under it
	Note        string   `json:"note"`        // what else the runner should know
	Backend     string   `json:"backend"`     // of the recorder
	Wall        int64    `json:"wallNs"`      // nanoseconds from start to end, 0 if not known
	Cost        Cost     `json:"cost"`
}

// A Score with its source, as in the statement: "observed" or "asserted".
type Score struct {
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Cost is the time that the recorder took from one attempt, in nanoseconds.
type Cost struct {
	Setup  int64 `json:"setupNs"`  // until the command ran
	Answer int64 `json:"answerNs"` // to answer its calls, summed over processes
	Close  int64 `json:"closeNs"`  // to close the journal
	Attest int64 `json:"attestNs"` // to derive digests and sign, if the attempt was attested at once
}

// Total of all parts.
func (c Cost) Total() int64 { return c.Setup + c.Answer + c.Close + c.Attest }

// Check holds a result to its rules.
func (r *Result) Check() error {
	bad := func(field, want, format string, args ...any) error {
		return &FieldError{field, fmt.Sprintf(format, args...), want}
	}
	switch {
	case !name(r.Task):
		return bad("task", wantName, "%q", r.Task)
	case r.Trial == 0 || r.Trial > MaxTrials:
		return bad("trial", fmt.Sprintf("1 to %d", MaxTrials), "%d", r.Trial)
	case r.Attempt == 0 || r.Attempt > MaxAttempts:
		return bad("attempt", fmt.Sprintf("1 to %d", MaxAttempts), "%d", r.Attempt)
	case !isHex(r.Run, 32):
		return bad("run", "32 lower-case hex digits", "%q", r.Run)
	case r.Outcome == Killed && r.Root != "":
		return bad("root", "none: a killed attempt has an open journal", "%q", r.Root)
	case r.Outcome != Killed && !isHex(r.Root, 64):
		return bad("root", "64 lower-case hex digits", "%q", r.Root)
	case !slices.Contains([]string{Completed, Failed, Cancelled, Abandoned, Killed}, r.Outcome):
		return bad("outcome", "completed, failed, cancelled, abandoned or killed", "%q", r.Outcome)
	case !slices.Contains([]string{"", "CLEAN", "DIRTY", "INCONCLUSIVE"}, r.Verdict):
		return bad("verdict", "CLEAN, DIRTY, INCONCLUSIVE or none", "%q", r.Verdict)
	case (r.Verdict == "" || r.Verdict == "CLEAN") && len(r.Reasons) > 0:
		return bad("reasons", "none with this verdict", "%q", r.Reasons)
	case r.Retry != "" && !id(r.Retry):
		return bad("retry", "a reason id", "%q", r.Retry)
	case len(r.Note) > 4096 || strings.ContainsFunc(r.Note, func(c rune) bool { return c < ' ' }):
		return bad("note", "one line of at most 4096 bytes", "%q", r.Note)
	case len(r.Backend) > 1024:
		return bad("backend", wantName, "%q", r.Backend)
	case slices.ContainsFunc(r.Reasons, func(s string) bool { return !id(s) }):
		return bad("reasons", "reason ids", "%q", r.Reasons)
	case r.Score != nil && (!slices.Contains([]string{"observed", "asserted"}, r.Score.Source) || r.Score.Value == "" || len(r.Score.Value) > 64 || strings.Trim(r.Score.Value, "-.0123456789") != ""):
		return bad("score", "a decimal number, observed or asserted", "%+v", *r.Score)
	}
	for _, n := range []int64{r.Wall, r.Cost.Setup, r.Cost.Answer, r.Cost.Close, r.Cost.Attest} {
		if n < 0 || n > maxExact {
			return bad("cost", "nanoseconds from 0", "%d", n)
		}
	}
	return nil
}

// id tells whether s has the form of a reason id.
func id(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-") == ""
}

// Line is the result as it stands in results.jsonl, with its newline.
func (r Result) Line() ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	if r.Reasons == nil {
		r.Reasons = []string{}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	if b.Len() > MaxResult {
		return nil, &FieldError{"line", fmt.Sprint(b.Len()), fmt.Sprintf("at most %d bytes", MaxResult)}
	}
	return b.Bytes(), nil
}

// ParseResult reads one line without its newline: exactly what Line writes.
func ParseResult(line []byte) (Result, error) {
	var r Result
	if err := strict(line, &r, MaxResult); err != nil {
		return Result{}, err
	}
	again, err := r.Line()
	if err != nil {
		return Result{}, err
	}
	if !bytes.Equal(again, append(slices.Clone(line), '\n')) {
		return Result{}, errors.New("not in the form in which it is written: keys in another order, white space, or a key twice")
	}
	return r, nil
}

// ParseResults reads results.jsonl. Attempts of a trial come in order, without a
// gap; an attempt that was not attested may stand a second time, with its
// verdict. Torn is the length of a last line without a newline: what a crash
// left, no result.
func ParseResults(data []byte) (list []Result, torn int, err error) {
	if len(data) > MaxResults {
		return nil, 0, fmt.Errorf("got %d bytes, want at most %d", len(data), MaxResults)
	}
	at := map[Cell]int{}
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			return list, len(line), nil
		}
		data = rest
		r, err := ParseResult(line)
		if err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", n, err)
		}
		if list, err = add(list, at, r); err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return list, 0, nil
}

// add puts r into the list, or gives the attempt that is there its verdict.
func add(list []Result, at map[Cell]int, r Result) ([]Result, error) {
	if i, ok := at[r.Cell]; ok {
		if err := list[i].attested(r); err != nil {
			return nil, err
		}
		list[i] = r
		return list, nil
	}
	if before := (Cell{r.Task, r.Trial, r.Attempt - 1}); r.Attempt > 1 {
		if _, ok := at[before]; !ok {
			return nil, &FieldError{"attempt", fmt.Sprintf("%d of %s, trial %d, without %d before", r.Attempt, r.Task, r.Trial, r.Attempt-1), "attempts in order, without a gap"}
		}
	}
	at[r.Cell] = len(list)
	return append(list, r), nil
}

// attested checks that next is r with its verdict, and nothing else is new.
func (r Result) attested(next Result) error {
	if r.Verdict != "" || next.Verdict == "" {
		return &FieldError{"attempt", r.Cell.String() + " twice", "a second line only to add the verdict"}
	}
	a, b := r, next
	a.Verdict, a.Reasons, a.Score, a.Retry, a.Cost.Attest = "", nil, nil, "", 0
	b.Verdict, b.Reasons, b.Score, b.Retry, b.Cost.Attest = "", nil, nil, "", 0
	x, err := a.Line()
	if err != nil {
		return err
	}
	y, err := b.Line()
	if err != nil {
		return err
	}
	if !bytes.Equal(x, y) {
		return &FieldError{"attempt", r.Cell.String() + " twice, and not the same", "a second line only to add the verdict"}
	}
	return nil
}

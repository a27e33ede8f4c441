package eval

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// States of a trial beside the verdicts of its last attempt.
const (
	Missing    = "missing"    // no attempt on record, or one more is due
	Unattested = "unattested" // recorded, no verdict yet
)

// A TrialRow is one trial: its last attempt decides.
type TrialRow struct {
	Task     string   `json:"task"`
	Trial    uint32   `json:"trial"`
	Attempts uint32   `json:"attempts"` // on record
	State    string   `json:"state"`    // CLEAN, DIRTY, INCONCLUSIVE, unattested or missing
	Reasons  []string `json:"reasons"`
	Outcome  string   `json:"outcome"` // "" if missing
	Score    *Score   `json:"score"`
	Note     string   `json:"note"`
}

// A TaskRow is one task over its trials.
type TaskRow struct {
	Task string `json:"task"`
	Mean string `json:"mean"` // of the scores there are, "" if there is none
	Of   int    `json:"of"`   // how many scores
}

// A Table is the whole grid, for people: nothing here is signed.
type Table struct {
	Trials   []TrialRow     `json:"trials"` // by task, then trial
	Tasks    []TaskRow      `json:"tasks"`
	States   map[string]int `json:"states"`   // number of trials
	Outcomes map[string]int `json:"outcomes"` // number of attempts
	Sources  map[string]int `json:"sources"`  // number of trials with a score of this source
	Mean     string         `json:"mean"`     // mean over tasks of their means, "" if there is no score
	Attempts int            `json:"attempts"`
	Killed   int            `json:"killed"`
	WallNs   int64          `json:"wallNs"` // of all attempts, summed
	CostNs   int64          `json:"costNs"` // what of it the recorder took; attesting comes on top
	AttestNs int64          `json:"attestNs"`
}

// Tabulate makes the table of a state, with the limit of retries that decides
// what is still missing.
func Tabulate(s *State, retries uint32) *Table {
	t := &Table{Trials: []TrialRow{}, Tasks: []TaskRow{}, States: map[string]int{}, Outcomes: map[string]int{}, Sources: map[string]int{}}
	by := map[Cell][]Result{}
	for _, r := range s.Results {
		k := Cell{Task: r.Task, Trial: r.Trial}
		by[k] = append(by[k], r)
		t.Attempts++
		t.Outcomes[r.Outcome]++
		if r.Outcome == Killed {
			t.Killed++
		} else if r.Wall > 0 {
			t.WallNs += r.Wall
			t.CostNs += r.Cost.Setup + r.Cost.Answer + r.Cost.Close
		}
		t.AttestNs += r.Cost.Attest
	}
	var means []*big.Rat
	for _, task := range s.Plan.Tasks {
		var scores []*big.Rat
		for trial := uint32(1); trial <= s.Plan.Trials; trial++ {
			attempts := by[Cell{Task: task, Trial: trial}]
			row := TrialRow{Task: task, Trial: trial, Attempts: uint32(len(attempts)), State: Missing, Reasons: []string{}}
			if n := len(attempts); n > 0 {
				last := attempts[n-1]
				row.Outcome, row.Note = last.Outcome, last.Note
				if Due(attempts, retries) == 0 {
					row.State, row.Score = last.Verdict, last.Score
					row.Reasons = append(row.Reasons, last.Reasons...)
					if last.Verdict == "" {
						row.State = Unattested
					}
				}
			}
			t.States[row.State]++
			if row.Score != nil {
				if v, ok := new(big.Rat).SetString(row.Score.Value); ok {
					scores = append(scores, v)
					t.Sources[row.Score.Source]++
				}
			}
			t.Trials = append(t.Trials, row)
		}
		r := TaskRow{Task: task, Of: len(scores)}
		if m := mean(scores); m != nil {
			r.Mean = decimal(m)
			means = append(means, m)
		}
		t.Tasks = append(t.Tasks, r)
	}
	if m := mean(means); m != nil {
		t.Mean = decimal(m)
	}
	return t
}

// Complete tells whether no trial is missing.
func (t *Table) Complete() bool { return t.States[Missing] == 0 }

func mean(list []*big.Rat) *big.Rat {
	if len(list) == 0 {
		return nil
	}
	sum := new(big.Rat)
	for _, v := range list {
		sum.Add(sum, v)
	}
	return sum.Quo(sum, big.NewRat(int64(len(list)), 1))
}

// decimal rounds to four digits and drops zeros at the end.
func decimal(v *big.Rat) string {
	s := v.FloatString(4)
	if strings.Contains(s, ".") {
		s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	return s
}

var letters = map[string]string{"CLEAN": "C", "DIRTY": "D", "INCONCLUSIVE": "I", Unattested: "u", Missing: "-"}

// Text is the table for a terminal, ending with a newline: one line a task, then
// what is not CLEAN, then the totals.
func (t *Table) Text() string {
	var b strings.Builder
	width := len("task")
	for _, r := range t.Tasks {
		width = max(width, min(len([]rune(r.Task)), 40))
	}
	fmt.Fprintf(&b, "%s  trials, by number\n", pad("task", width))
	i := 0
	for _, task := range t.Tasks {
		var cells []string
		for ; i < len(t.Trials) && t.Trials[i].Task == task.Task; i++ {
			cells = append(cells, pad(t.Trials[i].cell(), 7))
		}
		end := ""
		if task.Mean != "" {
			end = "mean " + task.Mean
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%s  %s %s", pad(cut(task.Task, 40), width), strings.Join(cells, " "), end), " ") + "\n")
	}
	fmt.Fprintf(&b, "C CLEAN, D DIRTY, I INCONCLUSIVE, u not attested, - missing; then the score, ~ if it is only asserted\n")
	for _, r := range t.Trials {
		if r.State == Missing && r.Attempts == 0 && r.Note == "" {
			continue // the grid's dash says it all
		}
		if r.State != "CLEAN" && r.State != Unattested || r.Note != "" {
			why := strings.Join(r.Reasons, ", ")
			if r.State == Missing && r.Attempts > 0 {
				why = fmt.Sprintf("%d on record, the last %s", r.Attempts, r.Outcome)
			}
			if r.Note != "" {
				why = strings.TrimPrefix(why+"; "+r.Note, "; ")
			}
			fmt.Fprintf(&b, " %s trial %d: %s: %s\n", r.Task, r.Trial, r.State, why)
		}
	}
	fmt.Fprintf(&b, "\n trials     %d: %s\n", len(t.Trials), t.Counts())
	fmt.Fprintf(&b, " attempts   %d", t.Attempts)
	if t.Killed > 0 {
		fmt.Fprintf(&b, ", %d killed and on record as such", t.Killed)
	}
	if n := t.Outcomes[Failed]; n > 0 {
		fmt.Fprintf(&b, ", %d with an exit code other than 0", n)
	}
	b.WriteString("\n")
	switch {
	case t.Mean == "":
		fmt.Fprintf(&b, " score      none\n")
	default:
		fmt.Fprintf(&b, " score      %s, the mean over tasks; trials: %s\n", t.Mean, t.sources())
	}
	if share := t.Share(); share != "" {
		fmt.Fprintf(&b, " recorder   took %s of %s in all attempts\n", share, time.Duration(t.WallNs).Round(time.Millisecond))
	}
	return b.String()
}

// Share of the attempts' time that the recorder took, "" if it is not known.
func (t *Table) Share() string {
	if t.WallNs == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*float64(t.CostNs)/float64(t.WallNs))
}

// Counts says how many trials are in each state.
func (t *Table) Counts() string {
	var parts []string
	for _, s := range []string{"CLEAN", "DIRTY", "INCONCLUSIVE", Unattested, Missing} {
		if n := t.States[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(parts, ", ")
}

func (t *Table) sources() string {
	var parts []string
	for _, s := range []string{"observed", "asserted"} {
		if n := t.Sources[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if none := len(t.Trials) - t.Sources["observed"] - t.Sources["asserted"]; none > 0 {
		parts = append(parts, fmt.Sprintf("%d without", none))
	}
	return strings.Join(parts, ", ")
}

func (r *TrialRow) cell() string {
	s := letters[r.State]
	if r.Score != nil {
		s += " " + r.Score.Value
		if r.Score.Source != "observed" {
			s += "~"
		}
	}
	return s
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-len([]rune(s))))
}

func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-3]) + "..."
	}
	return s
}

// Left guesses the time that the rest takes: the median of what was, for each
// that is still to come.
func Left(walls []time.Duration, todo, jobs int) time.Duration {
	if len(walls) == 0 || todo <= 0 {
		return 0
	}
	walls = slices.Clone(walls)
	slices.Sort(walls)
	rounds := (todo + max(jobs, 1) - 1) / max(jobs, 1)
	return walls[len(walls)/2] * time.Duration(rounds)
}

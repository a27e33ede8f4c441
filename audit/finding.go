package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cleanrun-dev/cleanrun/verify"
)

// Finding ids. The list is closed; spec/submission.md says of each what it means
// and what to do next.
const (
	FolderUnusable     = "folder-unusable"                   // the folder cannot be read as a submission
	SubmissionInvalid  = "submission-invalid"                // submission.cose, its twin, or the root over the receipts
	SignerUnknown      = "signer-unknown"                    // the policy has no line for the role of who signed
	MemberUnknown      = "member-unknown"                    // a file in the folder that is no member of a submission
	ReceiptUnlisted    = "receipt-unlisted"                  // a bundle in the folder that the grid does not name
	ReceiptMissing     = "receipt-missing"                   // a bundle that the grid names is not in the folder
	ReceiptSwapped     = "receipt-swapped"                   // a cell names the receipt of another task, trial or attempt
	BundleInvalid      = "bundle-invalid"                    // a bundle that verify calls INVALID
	CellMismatch       = "cell-mismatch"                     // a cell says another state, run or reason than its receipt
	ScoreMismatch      = "score-mismatch"                    // a score that does not follow from the grid, or a cell's that is not its receipt's
	ScoreAbove         = "score-above-receipts"              // a score above what the receipts carry
	UnscoredAsFailed   = "unscored-as-failed"                // unscored trials were counted as 0
	TooFewTrials       = "too-few-trials"                    // pass@k or pass^k of tasks with fewer than k scored trials
	UnscoredLeftOut    = "unscored-left-out"                 // unscored or missing trials are not in the counts
	GridGap            = "grid-gap"                          // tasks or trials of the benchmark that the grid does not list
	AttemptHidden      = "attempt-hidden"                    // attempts are numbered with a gap
	AttemptReplaced    = "attempt-replaced-without-evidence" // an earlier attempt is no failure of infrastructure
	InfrastructureRate = "infrastructure-rate"               // more attempts were replaced than the policy allows
	HeadReused         = "head-reused"                       // one journal stands for two attempts
	HeadDisputed       = "head-disputed"                     // two runners have signed receipts of one journal
	ReceiptOtherAgent  = "receipt-other-agent"               // a receipt of another agent or model than the submission's
	ReceiptOtherRunner = "receipt-other-runner"              // a receipt signed by another key than the submission
	SealOther          = "seal-other-benchmark"              // judged by another seal than the submission, or the other submissions, name
	SealMixed          = "seal-mixed"                        // receipts under more than one seal
	SealedByJudged     = "sealed-by-judged"                  // sealed by the party being judged
	BundleUndecided    = "bundle-undecided"                  // a bundle that verify cannot decide under this policy
	AssuranceLower     = "assurance-lower"                   // a bundle that is not as well logged as the policy, or the others, ask for
	SplitView          = "split-view"                        // a log that signed two trees of one size
)

// exits are the codes of findings, by id, in the order in which they are listed.
var exits = []struct {
	id   string
	exit int
	next string
}{
	{FolderUnusable, verify.ExitInvalid, "give a folder that cleanrun submit wrote"},
	{SubmissionInvalid, verify.ExitInvalid, "get the submission again from who published it"},
	{SignerUnknown, verify.ExitUndecided, "ask the signer for the policy line over another channel"},
	{MemberUnknown, verify.ExitInvalid, "take the file out of the folder, and ask who put it there"},
	{ReceiptUnlisted, verify.ExitInvalid, "ask the runner why this attempt is not in the grid"},
	{ReceiptMissing, verify.ExitUndecided, "ask the runner for the bundle of this name"},
	{ReceiptSwapped, verify.ExitInvalid, "ask the runner for a submission whose cells name their own receipts"},
	{BundleInvalid, verify.ExitInvalid, "look with cleanrun verify at the bundle"},
	{CellMismatch, verify.ExitInvalid, "the grid is not what the receipts say: do not rely on it"},
	{ScoreMismatch, verify.ExitInvalid, "rely on the recomputed score only"},
	{ScoreAbove, verify.ExitInvalid, "rely on the recomputed score only"},
	{UnscoredAsFailed, verify.ExitInvalid, "rely on the recomputed score only"},
	{UnscoredLeftOut, verify.ExitInvalid, "rely on the recomputed counts only"},
	{TooFewTrials, verify.ExitUndecided, "the rule gives these tasks no value: ask for more trials, or for a rule with a smaller k"},
	{GridGap, verify.ExitUndecided, "ask the runner for the tasks and trials that are not there"},
	{AttemptHidden, verify.ExitUndecided, "ask the runner for the attempts that are not there"},
	{AttemptReplaced, verify.ExitUndecided, "ask the runner why the trial was made again"},
	{InfrastructureRate, verify.ExitUndecided, "look at the replaced attempts; the policy line require infrastructure-rate allows a share of them"},
	{HeadReused, verify.ExitInvalid, "one run is one attempt of one submission: ask both runners"},
	{HeadDisputed, verify.ExitUndecided, "one of the runners has signed what the other recorded: ask both for their recordings"},
	{ReceiptOtherAgent, verify.ExitInvalid, "the receipt was not made for this agent and model"},
	{ReceiptOtherRunner, verify.ExitInvalid, "the receipt was signed by somebody else than the submission"},
	{SealOther, verify.ExitInvalid, "compare only submissions that were judged by one seal"},
	{SealMixed, verify.ExitInvalid, "compare only submissions that were judged by one seal"},
	{SealedByJudged, verify.ExitUndecided, "pin the benchmark's owner in the policy, and ask for runs under its seal"},
	{BundleUndecided, verify.ExitUndecided, "look with cleanrun verify at the bundle"},
	{AssuranceLower, verify.ExitUndecided, "ask the runner why this attempt is not in the log as the others are; cleanrun verify says what is missing"},
	{SplitView, verify.ExitInvalid, "keep both checkpoints and show them to the log's witnesses: no entry of this log can be relied on"},
}

// A Finding is one thing that is wrong with a submission.
type Finding struct {
	ID     string `json:"id"`
	Exit   int    `json:"exit"`
	Where  string `json:"where"`  // cell, file or ""
	Detail string `json:"detail"` // got and want
	Next   string `json:"next"`
	// Evidence holds signed checkpoints as they stand, of a split view.
	Evidence []string `json:"evidence,omitempty"`

	cell int // index in the grid, -1 for none
}

// rank is the place of id in the closed list.
func rank(id string) int {
	for i := range exits {
		if exits[i].id == id {
			return i
		}
	}
	panic("audit: no finding " + id)
}

// MaxFindings of one id are listed for a submission; the last one says how many
// more there are.
const MaxFindings = 100

// find adds a finding. cell is an index in the grid, -1 for none.
func (s *Submission) find(id string, cell int, where, format string, args ...any) {
	if s.found[id]++; s.found[id] > MaxFindings {
		return
	}
	e := exits[rank(id)]
	s.Findings = append(s.Findings, Finding{ID: id, Exit: e.exit, Where: where, Detail: fmt.Sprintf(format, args...), Next: e.next, cell: cell})
}

// at adds a finding of a cell.
func (s *Submission) at(id string, cell int, format string, args ...any) {
	s.find(id, cell, s.statement.Predicate.Grid[cell].Name(), format, args...)
}

// sortFindings puts them in the order of the closed list and says how many are
// not listed.
func (s *Submission) sortFindings() {
	for id, n := range s.found {
		if n > MaxFindings {
			e := exits[rank(id)]
			s.Findings = append(s.Findings, Finding{ID: id, Exit: e.exit, Detail: fmt.Sprintf("%d more like these", n-MaxFindings), Next: e.next, cell: -1})
			s.found[id] = 0
		}
	}
	slices.SortStableFunc(s.Findings, func(a, b Finding) int {
		last := func(f Finding) int { // what concerns no cell comes after what does
			if f.cell < 0 {
				return 1
			}
			return 0
		}
		return cmp.Or(rank(a.ID)-rank(b.ID), last(a)-last(b), a.cell-b.cell)
	})
}

// Package journal writes and reads the record of one run.
//
// Limits first. A journal says what its recorder saw. That the recorder saw
// everything, and that path digests are those of the true paths, is asserted;
// the second can be checked later by disclosing rows. An open journal, one
// without a final row, is a valid prefix and never evidence for CLEAN. A journal
// that passes the Checker is well formed, not authentic: compare its Head with a
// signed one.
//
// A journal is a sequence of rows (Row), each deterministic CBOR, in an
// append-only file of length-prefixed records, with a tree hash over all rows
// (RFC 9162) as its Head. Each row commits to a private Detail. One Secret of 32
// bytes yields all salts and the key of the path digests; Disclosure opens one
// row. The format, the rules and the closed list of their names: spec/journal.md.
//
// The recorder uses a Writer (Create). Verifiers use ParseRow, Checker, ParseHead
// and Disclosure.Verify, which take bytes and have no clock, file system or
// network.
package journal

import (
	"errors"
	"fmt"
)

// A Rule is one of the closed list of checks that a journal can fail
// (spec/journal.md, "Rules").
type Rule string

const (
	RuleFrame    Rule = "frame"    // length prefix, bound, torn tail
	RuleEncoding Rule = "encoding" // deterministic CBOR of the closed schema
	RuleStart    Rule = "start"    // row 0 and what it binds
	RuleSeq      Rule = "seq"      // 0, 1, 2, ...
	RuleTime     Rule = "time"     // never decreasing
	RulePhase    Rule = "phase"    // never decreasing
	RuleProc     Rule = "proc"     // acting process, births and deaths
	RuleOp       Rule = "op"       // keys that the operation has or lacks
	RuleDir      Rule = "dir"      // numbering of directories
	RuleResult   Rule = "result"   // errno
	RuleFlags    Rule = "flags"    // flags that the operation and result allow
	RuleContent  Rule = "content"  // direction and size
	RuleOrigin   Rule = "origin"   // where the content comes from
	RuleScope    Rule = "scope"    // the scope flag
	RuleReward   Rule = "reward"   // how a phase ended, what grading gave, what it met
	RuleFinal    Rule = "final"    // what the closing row binds
	RuleClosed   Rule = "closed"   // nothing after the closing row
	RuleHead     Rule = "head"     // the head's text, or a head of other rows
	RuleProof    Rule = "proof"    // inclusion and consistency proofs
	RuleOpening  Rule = "opening"  // disclosure of a row
)

// A RuleError is the first rule that a journal fails, and where.
type RuleError struct {
	Rule Rule
	Row  uint64 // number of the row, counted by the reader
	Got  string
	Want string

	torn bool // the record ends with the file
}

func tornRecord(want, gotFormat string, a ...any) *RuleError {
	err := broken(RuleFrame, want, gotFormat, a...)
	err.torn = true
	return err
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("journal row %d, rule %s: got %s, want %s", e.Row, e.Rule, e.Got, e.Want)
}

func broken(rule Rule, want, gotFormat string, a ...any) *RuleError {
	return &RuleError{Rule: rule, Got: fmt.Sprintf(gotFormat, a...), Want: want}
}

// ErrLocked says that another process writes this journal.
var ErrLocked = errors.New("another process writes this journal: wait for its run to end")

package main

import (
	"fmt"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/runlog"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// registrationJSON is what a start row and a run folder say of the log that a run was
// registered in. Nothing in it is verified.
type registrationJSON struct {
	Origin string  `json:"origin"`          // of the log, as its checkpoint in the start row names it
	Size   uint64  `json:"size"`            // entries in that checkpoint
	Index  *uint64 `json:"index,omitempty"` // of REGISTER
	// From the run folder.
	Log         string  `json:"log,omitempty"` // URL or folder
	Checkpoints int     `json:"checkpoints"`   // that the log acknowledged
	Final       *uint64 `json:"final,omitempty"`
	Ended       bool    `json:"ended"` // FINAL is in the log, and a checkpoint that holds it was taken
}

// registrationOf is nil for a run that no log knows.
func registrationOf(ev *events) *registrationJSON {
	st := ev.summary.Start
	s, err := runlog.Read(ev.path) // of a bundle it fails
	if st.Registration == nil || st.Freshness == nil {
		if err != nil {
			return nil
		}
		return &registrationJSON{Log: s.Log, Index: s.Register.Index}
	}
	out := new(registrationJSON)
	if u, err := proof.ParseCheckpoint(*st.Freshness); err == nil {
		out.Origin, out.Size = u.Checkpoint().Origin, u.Checkpoint().Size
	}
	if u, err := receipt.ParseLogReceipt(*st.Registration); err == nil {
		if in := u.Unauthenticated().Inclusion; in != nil {
			out.Index = &in.Index
		}
	}
	if err == nil {
		out.Log, out.Checkpoints, out.Ended = s.Log, len(s.Checkpoints), s.Closing != nil
		if s.Final != nil {
			out.Final = s.Final.Index
		}
	}
	return out
}

func (r *registrationJSON) text(b *strings.Builder) {
	if r == nil {
		return
	}
	if r.Origin == "" { // the start row names none
		fmt.Fprintf(b, " log        not in the start row: the run went on without %s\n", r.Log)
		return
	}
	at := ""
	if r.Index != nil {
		at = fmt.Sprintf(", registered as entry %d", *r.Index)
	}
	fmt.Fprintf(b, " log        %s%s, the start row holds its checkpoint of %s\n", quotePath(r.Origin), at, several(r.Size, "entry", "entries"))
	if r.Log == "" {
		return
	}
	end := "the end is not in it: cleanrun attest -log logs it, if the journal is closed"
	if r.Final != nil {
		end = fmt.Sprintf("the end as entry %d", *r.Final)
	}
	fmt.Fprintf(b, "            %s: %d CHECKPOINTs, %s\n", r.Log, r.Checkpoints, end)
}

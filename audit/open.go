package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/submission"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// open reads the two signed files and looks who signed them. After an error that
// leaves nothing to rely on, s.statement stays nil.
func (s *Submission) open(o *Options) {
	var err error
	if s.folder, err = openFolder(s.Dir); err != nil {
		s.find(FolderUnusable, -1, "", "%v", err)
		return
	}
	cose, err := s.folder.read(MemberCOSE, maxCOSE, nil, nil)
	if errors.Is(err, fs.ErrNotExist) {
		s.find(FolderUnusable, -1, MemberCOSE, "got no such file, want the signed statement")
		return
	}
	if err != nil {
		s.find(SubmissionInvalid, -1, MemberCOSE, "%v", err)
		return
	}
	if err := s.readSigned(cose, o.Policy); err != nil {
		where := ""
		if e := (*memberError)(nil); errors.As(err, &e) {
			where, err = e.member, e.err
		}
		s.statement = nil
		s.find(SubmissionInvalid, -1, where, "%v", err)
		return
	}
	p := &s.statement.Predicate
	s.ID, s.Agent, s.Model, s.Benchmark, s.Trials, s.Score = s.statement.ID(), p.Agent, p.Model, p.Benchmark, p.Trials, p.Score
	s.facts = make([]fact, len(p.Grid))
	if err := s.members(); err != nil {
		s.find(FolderUnusable, -1, "", "%v", err)
	}
}

// A memberError says in which file an error is.
type memberError struct {
	member string
	err    error
}

func (e *memberError) Error() string { return e.member + ": " + e.err.Error() }

func (s *Submission) readSigned(cose []byte, policy *verify.Policy) error {
	in := func(member string, err error) error { return &memberError{member, err} }
	u, err := receipt.ParseSign1(receipt.KindSubmission, cose)
	if err != nil {
		return in(MemberCOSE, err)
	}
	said := u.Unauthenticated()
	dsse, err := s.folder.read(MemberDSSE, maxDSSE, nil, nil)
	if err != nil {
		return in(MemberDSSE, err)
	}
	e, err := receipt.ParseEnvelope(receipt.KindSubmission, dsse)
	if err != nil {
		return in(MemberDSSE, err)
	}
	if err := receipt.SamePayload(said.Payload, e.Unauthenticated().Payload); err != nil {
		return in(MemberDSSE, err)
	}
	if got := e.Unauthenticated().Kid; got != said.Kid {
		return in(MemberDSSE, fmt.Errorf("keyid: got %s, want %s, the key of %s", receipt.Fingerprint(got), receipt.Fingerprint(said.Kid), MemberCOSE))
	}
	s.signer = verify.Signatory{Name: said.Issuer, Key: said.Kid}
	s.Runner = verify.Party{Name: said.Issuer, Fingerprint: receipt.Fingerprint(said.Kid)}
	if len(policy.Runners) == 0 {
		s.find(SignerUnknown, -1, MemberCOSE, "the policy has no runner line: %q, key %s, may be anybody", said.Issuer, s.Runner.Fingerprint)
	} else {
		i := slices.IndexFunc(policy.Runners, func(k receipt.PublicKey) bool { return k.Thumbprint() == said.Kid })
		if i < 0 {
			return in(MemberCOSE, fmt.Errorf("runner key: got %s, which calls itself %q, want one of the %d runner keys of the policy", s.Runner.Fingerprint, said.Issuer, len(policy.Runners)))
		}
		if _, err := u.Verify(policy.Runners[i]); err != nil {
			return in(MemberCOSE, err)
		}
		if _, err := e.Verify(policy.Runners[i]); err != nil {
			return in(MemberDSSE, err)
		}
		s.Runner.Pinned, s.signer.Pinned = true, true
	}
	if s.statement, err = submission.ParseStatement(said.Payload); err != nil {
		return in(MemberCOSE, err)
	}
	if got, want := said.Subject, s.statement.ID(); got != want {
		return in(MemberCOSE, fmt.Errorf("sub: got %.80q, want %q, from the root over the receipts", got, want))
	}
	s.rule, err = s.statement.Rule()
	return err
}

// members compares what stands in the folder with the grid.
func (s *Submission) members() error {
	names, err := s.folder.names()
	if err != nil {
		return err
	}
	slices.Sort(names)
	grid := s.statement.Predicate.Grid
	listed := make(map[string]bool, len(grid))
	for i := range grid {
		if grid[i].State.Attested() {
			listed[grid[i].Bundle] = true
		}
	}
	for _, name := range names {
		if name == MemberCOSE || name == MemberDSSE {
			continue
		}
		switch sum, ok := bundleName(name); {
		case !ok:
			s.find(MemberUnknown, -1, name, "got a file of this name, want %s, %s and bundles that are named by their SHA-256", MemberCOSE, MemberDSSE)
		case !listed[sum]:
			s.find(ReceiptUnlisted, -1, name, "got a bundle that no cell of the grid names")
		}
	}
	return nil
}

package runlog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// Config of what logs one run.
type Config struct {
	Registry registry.Registry
	Signer   receipt.Signer // the runner's
	Where    string         // the log's URL or folder, to be remembered
	Dir      string         // run folder
	// Policy pins logs and says which cosignatures are enough; nil takes the registry's
	// key and asks for none.
	Policy *proof.Policy
	// Patience is how long a log that is not available is tried again for an entry that
	// the run needs; 0 is not at all.
	Patience time.Duration
	// Before is the REGISTER of a run that was registered and never started. It is used
	// again if it says of this run what a new one would.
	Before []byte
	// Compact is for a bundle that holds no rows: Members then proves that the journal
	// at each CHECKPOINT is how the whole one begins.
	Compact bool
}

// NoSealError says that a sealed set is in no SEAL of the log that counts for it.
type NoSealError struct{ Why string }

func (e *NoSealError) Error() string { return e.Why }

// A Run logs one run. The methods of one Run may be called from different goroutines.
type Run struct {
	c      Config
	sealed [32]byte
	owner  [32]byte // who signed what is sealed

	mu     sync.Mutex
	state  State // read and written under mu, or before the worker starts
	next   *journal.Head
	failed error // why CHECKPOINTs were not logged, the last reason
	missed int   // attempts that failed

	wake     chan struct{}
	stopping chan struct{}      // closed by Stop
	cancel   context.CancelFunc // of requests; nil before Register succeeded
	worker   sync.WaitGroup
}

// New prepares the logging of a run of this task.sealed. Nothing is logged yet.
func New(c Config, sealed []byte) (*Run, error) {
	s, err := receipt.ParseSealed(sealed)
	if err != nil {
		return nil, err
	}
	r := &Run{c: c, sealed: sha256.Sum256(sealed), owner: s.Signed.Unauthenticated().Kid, wake: make(chan struct{}, 1), stopping: make(chan struct{})}
	if s.Part != nil {
		r.sealed = sha256.Sum256(s.Part.Head)
	}
	return r, nil
}

// Register logs the run and puts the proof into its start row: sandbox.Config.Register.
// The error is a *NoSealError, an *entry.Refusal, or wraps registry.ErrUnavailable: then
// start is as it was.
func (r *Run) Register(ctx context.Context, start *journal.Start) error {
	seal, err := r.findSeal(ctx)
	if err != nil {
		return err
	}
	register, err := entry.RegisterOf(start, r.sealed)
	if err != nil {
		return err
	}
	statement, err := r.c.statement(register)
	if err != nil {
		return err
	}
	r.state = State{Log: r.c.Where, Key: r.c.Registry.Key().String(), Seal: *seal, Register: Item{Statement: statement}}
	if err := r.state.write(r.c.Dir); err != nil {
		return err
	}
	// From here on the attempt may be in the log, where no second one can be: it is worth
	// some patience.
	var logged registry.Logged
	if err := again(ctx, r.c.Patience, func(ctx context.Context) (err error) {
		logged, err = r.c.Registry.Add(ctx, statement)
		return err
	}); err != nil {
		return err
	}
	r.state.Register.Index = &logged.Index
	if err := r.state.write(r.c.Dir); err != nil {
		return err
	}
	if logged.Index <= *seal.Index {
		return fmt.Errorf("the log put REGISTER at index %d and the SEAL at %d, want the SEAL first", logged.Index, *seal.Index)
	}
	var p *registry.Proofs
	var v *proof.Verified
	if err := again(ctx, r.c.Patience, func(ctx context.Context) (err error) {
		if p, err = r.c.Registry.Proofs(ctx, []uint64{logged.Index}, nil); err == nil {
			v, err = r.c.verified(p.Checkpoint)
		}
		return err
	}); err != nil {
		return err
	}
	if err := included(p.Receipt, statement, logged.Index, v); err != nil {
		return fmt.Errorf("REGISTER: %w", err)
	}
	start.Registration, start.Freshness = &p.Receipt, &p.Checkpoint
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	r.worker.Go(func() { r.stream(work) })
	return nil
}

// statement signs a REGISTER, or takes the one that was signed before: a second one of
// the attempt would be refused.
func (c *Config) statement(register entry.Register) ([]byte, error) {
	if u, err := entry.Parse(c.Before); err == nil && u.Kind() == entry.KindRegister {
		if e, err := u.Verify(c.Signer.Public()); err == nil && e.Register() == register {
			return c.Before, nil
		}
	}
	return entry.SignRegister(c.Signer, register)
}

// findSeal takes the SEAL over what the run's task is sealed in.
func (r *Run) findSeal(ctx context.Context) (*Item, error) {
	index, err := r.c.Registry.Seal(ctx, r.sealed)
	if errors.Is(err, registry.ErrNoSeal) {
		return nil, &NoSealError{fmt.Sprintf("the log has no SEAL over %x, which the task is sealed in", r.sealed)}
	}
	if err != nil {
		return nil, err
	}
	statement, err := r.c.Registry.Entry(ctx, index)
	if err != nil {
		return nil, err
	}
	u, err := receipt.ParseSign1(receipt.KindSeal, statement)
	if err != nil {
		return nil, fmt.Errorf("entry %d of the log: %w", index, err)
	}
	said := u.Unauthenticated()
	if [32]byte(said.Payload) != r.sealed {
		return nil, fmt.Errorf("entry %d of the log is a SEAL over %x, want %x", index, said.Payload, r.sealed)
	}
	if said.Kid != r.owner {
		return nil, &NoSealError{fmt.Sprintf("the log's SEAL over %x is by the key %s, want one by %s, who signed what is sealed",
			r.sealed, receipt.Fingerprint(said.Kid), receipt.Fingerprint(r.owner))}
	}
	return &Item{Statement: statement, Index: &index}, nil
}

// verified holds a checkpoint to the log's key and the policy.
func (c *Config) verified(note []byte) (*proof.Verified, error) {
	u, err := proof.ParseCheckpoint(note)
	if err != nil {
		return nil, err
	}
	key := c.Registry.Key()
	if c.Policy != nil {
		l, ok := c.Policy.FindLog(u.Checkpoint().Origin)
		if !ok {
			return nil, fmt.Errorf("got a checkpoint of the log %.80q, want one of a log that the policy names", u.Checkpoint().Origin)
		}
		key = l.Key
	}
	v, err := u.Verify(key)
	if err != nil || c.Policy == nil {
		return v, err
	}
	q, err := c.Policy.Check(v)
	if err != nil {
		return nil, err
	}
	if !q.Met {
		return nil, fmt.Errorf("%w: its checkpoint has the cosignatures of %d of %d witnesses, want the quorum of the policy", registry.ErrUnavailable, q.Got, q.Want)
	}
	return v, nil
}

// included checks that a COSE receipt proves the entry at index under a checkpoint.
func included(cose, statement []byte, index uint64, v *proof.Verified) error {
	u, err := receipt.ParseLogReceipt(cose)
	if err != nil {
		return err
	}
	got, err := u.VerifyInclusion(v.Log(), statement)
	if err != nil {
		return err
	}
	at := v.Checkpoint()
	if in := got.Inclusion(); in.Index != index || in.Size != at.Size || got.Root() != at.Root {
		return fmt.Errorf("got a receipt for index %d in a tree of %d entries, want index %d in the checkpoint's tree of %d", in.Index, in.Size, index, at.Size)
	}
	return nil
}

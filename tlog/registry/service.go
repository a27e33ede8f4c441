package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
)

// addWithin bounds how long a backend may take to make an entry durable. It does
// not end with the request: an entry that was handed to the backend is followed to
// its end.
const addWithin = 30 * time.Second

// Options of a Service.
type Options struct {
	// Log takes the entries. The Service closes it. Nobody else may add to it:
	// what another process adds is checked only after it is in the log.
	Log tlog.Log
	// Key signs COSE receipts. It is the key that signs the log's checkpoints.
	Key receipt.Signer
	// Admit finds the key of a thumbprint that may sign entries in a role.
	Admit func(role entry.Role, kid [32]byte) (receipt.PublicKey, bool)
}

// A Service is a Registry over a log in this process.
type Service struct {
	log   tlog.Log
	key   receipt.Signer
	admit func(entry.Role, [32]byte) (receipt.PublicKey, bool)

	mu      sync.Mutex
	ledger  *entry.Ledger
	held    map[[32]byte]*hold         // by what an entry that is being added may contradict
	next    uint64                     // every entry before it is in the ledger, or a fault
	ahead   map[uint64]struct{}        // entries from next on of which the same is true
	out     map[chan struct{}]struct{} // adds that the backend has not answered; closed when it has
	doubts  map[*hold]struct{}
	faults  []Fault
	skipped uint64 // entries that are faults, also those that faults no longer names
	failed  error  // why the last add failed, if the log is the reason
	stuck   *stuck // the last entry that was not published
	closed  bool
	adding  sync.WaitGroup
	reading chan struct{} // has room for one: who reads entries that were not added here

	opened openedNote
}

var _ Registry = (*Service)(nil)

// A Fault is an entry of the log that contradicts one before it, or that nobody
// who is admitted has signed. It is in the log all the same; the ledger leaves it out.
type Fault struct {
	Index uint64
	Err   error // *entry.Refusal
}

// maxFaults is how many faults a Service names; it counts them all.
const maxFaults = 100

// Open makes a Service over a log, all of whose entries it reads first. Close
// closes the log too; if Open fails, the log is the caller's to close.
func Open(ctx context.Context, o Options) (*Service, error) {
	s := &Service{log: o.Log, key: o.Key, admit: o.Admit, ledger: entry.NewLedger(), held: map[[32]byte]*hold{}, ahead: map[uint64]struct{}{},
		out: map[chan struct{}]struct{}{}, doubts: map[*hold]struct{}{}, reading: make(chan struct{}, 1)}
	if err := s.replay(ctx); err != nil {
		return nil, fmt.Errorf("reading the log: %w", err)
	}
	return s, nil
}

// Faults are the first entries that the log should not have, and how many there are.
func (s *Service) Faults() (first []Fault, count uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Fault(nil), s.faults...), s.skipped
}

// Key implements Registry.
func (s *Service) Key() receipt.PublicKey { return s.key.Public() }

// Health is nil while the log takes entries, and else says why the last one could
// not be added. It tries what is in doubt again, so that a log recovers that nobody adds to.
func (s *Service) Health(ctx context.Context) error {
	s.mu.Lock()
	closed, doubts, stuck := s.closed, len(s.doubts), s.stuck
	s.mu.Unlock()
	if closed {
		return errors.New("the log is being closed")
	}
	if doubts > 0 {
		if err := s.settleAll(ctx); err != nil {
			return err
		}
	}
	if stuck != nil {
		if _, err := s.log.Wait(ctx, stuck.index); err != nil {
			return err
		}
		s.published(ctx, stuck.index, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// unavailable says that it is the log, or who waits for it, and not the entry.
func unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// Verify parses a statement and checks that a key signed it which is admitted for
// the role of its kind. The error is an *entry.Refusal.
func Verify(statement []byte, admit func(entry.Role, [32]byte) (receipt.PublicKey, bool)) (*entry.Entry, error) {
	u, err := entry.Parse(statement)
	if err != nil {
		return nil, err
	}
	key, ok := admit(u.Kind().Role(), u.Issuer())
	if !ok {
		return nil, entry.Unknown(u)
	}
	return u.Verify(key)
}

// Add implements Registry.
func (s *Service) Add(ctx context.Context, statement []byte) (Logged, error) {
	e, err := Verify(statement, s.admit)
	if err != nil {
		return Logged{}, err
	}
	index, err := s.place(ctx, e, statement)
	if err != nil {
		return Logged{}, err
	}
	r, err := s.await(ctx, index, e.Leaf(), e.Subject())
	s.published(ctx, index, err)
	if err != nil {
		return Logged{}, unavailable(err)
	}
	return Logged{index, r}, nil
}

// stuck is an entry that no checkpoint came for: the disk is full, or the witnesses
// do not answer.
type stuck struct {
	index uint64
	err   error
}

// published notes whether the last entry got its checkpoint, if it was not given up by
// who added it.
func (s *Service) published(ctx context.Context, index uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.stuck = nil
	} else if ctx.Err() == nil {
		s.stuck = &stuck{index, err}
	}
}

// place finds the entry in the log, or adds it.
func (s *Service) place(ctx context.Context, e *entry.Entry, statement []byte) (uint64, error) {
	if err := s.few(ctx); err != nil {
		return 0, err
	}
	h, err := s.acquire(ctx, e)
	if err != nil {
		return 0, err
	}
	defer s.adding.Done()
	s.mu.Lock()
	size := s.next
	index, logged := s.ledger.Index(e.Leaf())
	if !logged {
		err = s.ledger.Check(e)
	}
	s.mu.Unlock()
	if logged || err != nil {
		s.release(h)
		return index, err
	}
	index, err = s.add(ctx, h, statement)
	if errors.Is(err, tlog.ErrClosed) { // this error and the next leave no doubt
		s.release(h)
		return 0, unavailable(err)
	}
	if errors.Is(err, tlog.ErrEntrySize) {
		s.release(h)
		return 0, &entry.Refusal{ID: entry.NotAnEntry, Got: fmt.Sprintf("%d bytes", len(statement)), Want: fmt.Sprintf("1 to %d", tlog.MaxEntry)}
	}
	if err == nil {
		err = s.account(ctx, h, e, index)
	}
	if _, refused := errors.AsType[*entry.Refusal](err); err != nil && !refused {
		s.doubt(h, &doubt{entry: e, statement: statement, from: size}, err)
		return 0, unavailable(err)
	}
	return index, err
}

// add hands a statement to the backend. The request may end: what the backend has
// may be in the log all the same, and is waited for.
func (s *Service) add(ctx context.Context, h *hold, statement []byte) (uint64, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), addWithin)
	defer stop()
	returned := make(chan struct{})
	s.mu.Lock()
	s.out[returned] = struct{}{}
	s.mu.Unlock()
	index, err := s.log.Add(ctx, statement)
	s.mu.Lock()
	delete(s.out, returned)
	if err == nil {
		s.known(index)
	}
	s.mu.Unlock()
	close(returned)
	return index, err
}

// account takes an entry that has its index into the ledger, after all that are
// before it in the log. If there are some that were not added here, they are read
// first, and then the entry is checked again: it may contradict one of them. Then
// it is in the log and refused, as any reader of the log will refuse it.
func (s *Service) account(ctx context.Context, h *hold, e *entry.Entry, index uint64) error {
	s.mu.Lock()
	var out []chan struct{}
	if s.next <= index {
		for c := range s.out {
			out = append(out, c)
		}
	}
	s.mu.Unlock()
	for _, c := range out { // whose indexes are not known yet, and may be the missing ones
		<-c
	}
	if err := s.catchUp(ctx, index); err != nil {
		return err
	}
	s.mu.Lock()
	err := s.ledger.Check(e)
	s.enter(e, err, index)
	s.failed = nil
	s.mu.Unlock()
	s.release(h)
	return err
}

// enter puts an entry of the log into the ledger, or among the faults if err says
// that it is one. The caller has the lock.
func (s *Service) enter(e *entry.Entry, err error, index uint64) {
	if err == nil {
		s.ledger.Apply(e, index)
	} else {
		if len(s.faults) < maxFaults {
			s.faults = append(s.faults, Fault{index, err})
		}
		s.skipped++
	}
	s.known(index)
}

// known notes that the entry at index is accounted for, or will be by who added
// it. The caller has the lock.
func (s *Service) known(index uint64) {
	if index < s.next {
		return
	}
	s.ahead[index] = struct{}{}
	for {
		if _, ok := s.ahead[s.next]; !ok {
			return
		}
		delete(s.ahead, s.next)
		s.next++
	}
}

// Close waits for what is being added, and closes the log.
func (s *Service) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.adding.Wait()
	return s.log.Close()
}

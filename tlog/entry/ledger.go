package entry

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A Ledger is what of a log's entries decides whether a next one contradicts
// them: digests and sizes, no statements. It is made by applying all entries in
// the order of the log. It is not safe for concurrent use.
//
// A run belongs to the key that registered it. Another issuer may register the
// same run id, which is public once it is logged: that is another run, and stops
// nothing. For the same reason a SEAL by one owner hides no other's.
//
// The bytes of an entry that is in the log already contradict nothing and change
// nothing, so that who lost the answer may ask again: Index finds them.
type Ledger struct {
	entries  map[leafKey]uint64 // index of the first entry of these bytes
	issuers  map[[32]byte]issuer
	thumbs   [][32]byte // of issuers, by number
	seals    map[[32]byte][]sealedBy
	runs     map[runKey]uint32 // index in states
	states   []runState
	attempts map[attemptKey]uint64 // index of the REGISTER
	missing  []Missing
	hidden   []Hidden
}

// leafKey begins a leaf hash. 24 bytes are enough: two entries of one key take
// 2^96 steps to find.
type leafKey [24]byte

// issuer numbers the keys that have entries: few keys have many.
type issuer uint32

type sealedBy struct {
	issuer issuer
	index  uint64
}

type runKey struct {
	issuer issuer
	run    [16]byte
}

// runState is what a run's entries have said so far.
type runState struct {
	registered  uint64 // index
	last        uint64 // index of the last REGISTER, CHECKPOINT or FINAL
	size        uint64 // of the journal by it; 0 without one
	root        [32]byte
	checkpoints uint32
	final       bool
}

// attemptKey is an attempt. The trial begins the SHA-256 of (issuer, benchmark,
// task, sealed, agent, model, trial). Who finds two trials of one key, in 2^64
// steps, has found two of his own, and can register only one.
type attemptKey struct {
	trial   [16]byte
	attempt uint32
}

// NewLedger is the ledger of an empty log.
func NewLedger() *Ledger {
	return &Ledger{
		entries:  make(map[leafKey]uint64),
		issuers:  make(map[[32]byte]issuer),
		seals:    make(map[[32]byte][]sealedBy),
		runs:     make(map[runKey]uint32),
		attempts: make(map[attemptKey]uint64),
	}
}

func trialOf(thumb [32]byte, r *Register) [16]byte {
	b, err := dcbor.Marshal([]any{thumb[:], r.Benchmark, r.Task, r.Sealed[:], r.Agent[:], r.Model[:], r.Trial})
	if err != nil {
		panic(err) // texts, byte strings and integers always encode
	}
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

// run finds what the issuer of e said of its run.
func (l *Ledger) run(e *Entry) *runState {
	n, ok := l.issuers[e.key.Thumbprint()]
	if !ok {
		return nil
	}
	i, ok := l.runs[runKey{n, e.Run()}]
	if !ok {
		return nil
	}
	return &l.states[i]
}

// Check tells whether e contradicts the entries that were applied. It changes
// nothing. The error is a *Refusal.
func (l *Ledger) Check(e *Entry) error {
	if _, ok := l.Index(e.leaf); ok {
		return nil
	}
	if r := l.refuse(e); r != nil {
		return r
	}
	return nil
}

func (l *Ledger) refuse(e *Entry) *Refusal {
	switch e.kind {
	case KindSeal, KindSubmit:
		return nil
	case KindRegister:
		return l.refuseRegister(e)
	}
	run := l.run(e)
	id := hexRun(e.Run())
	switch e.kind {
	case KindCheckpoint:
		h := e.body.head
		switch {
		case run == nil:
			return unregistered(CheckpointUnregistered, e)
		case run.final:
			return &Refusal{AfterFinal, fmt.Sprintf("a CHECKPOINT of run %s", id), fmt.Sprintf("none after its FINAL, which is entry %d", run.last), "a run that has ended does not go on: register a new one"}
		case h.Size <= run.size:
			return &Refusal{CheckpointBack, fmt.Sprintf("%d rows of run %s", h.Size, id), fmt.Sprintf("more than the %d of its last CHECKPOINT, which is entry %d", run.size, run.last), "a journal only grows: log its newest head"}
		}
	case KindFinal:
		h := e.body.final.Head
		switch {
		case run == nil:
			return unregistered(FinalUnregistered, e)
		case run.final:
			return &Refusal{FinalAgain, fmt.Sprintf("another FINAL of run %s", id), fmt.Sprintf("no more than one, which is entry %d", run.last), "a run ends once"}
		case h.Size < run.size:
			return &Refusal{FinalShort, fmt.Sprintf("%d rows of run %s", h.Size, id), fmt.Sprintf("at least the %d of its last CHECKPOINT, which is entry %d", run.size, run.last), "rows that were logged cannot be dropped"}
		case h.Size == run.size && h.Root != run.root:
			return &Refusal{FinalHead, fmt.Sprintf("root %x of run %s at %d rows", h.Root, id, h.Size), fmt.Sprintf("%x, that of its CHECKPOINT of as many rows, which is entry %d", run.root, run.last), "rows that were logged cannot be changed"}
		}
	case KindAttest:
		h := e.body.attest.Head
		switch {
		case run == nil:
			return unregistered(AttestUnfinished, e)
		case !run.final:
			return &Refusal{AttestUnfinished, fmt.Sprintf("a receipt of run %s, which has no FINAL", id), "its FINAL before its receipt", "log the run's end first"}
		case h.Size != run.size || h.Root != run.root:
			return &Refusal{AttestHead, fmt.Sprintf("a receipt of run %s over %d rows with root %x", id, h.Size, h.Root), fmt.Sprintf("%d rows with root %x, as its FINAL says, which is entry %d", run.size, run.root, run.last), "attest the journal that was logged"}
		}
	default:
		return &Refusal{NotAnEntry, e.kind.String(), "a kind of spec/log.md", ""}
	}
	return nil
}

func unregistered(id ID, e *Entry) *Refusal {
	return &Refusal{id, fmt.Sprintf("the %v of run %s, which %s has not registered", e.kind, hexRun(e.Run()), e.key.Name()), "a REGISTER by the same key before it", "a run is registered before it starts and by the key that signs its receipt"}
}

func (l *Ledger) refuseRegister(e *Entry) *Refusal {
	r := &e.body.register
	if len(l.seals[r.Sealed]) == 0 {
		return &Refusal{SealMissing, fmt.Sprintf("a run under %x, which no SEAL of this log is over", r.Sealed), "the SEAL in the log before the run", "the owner logs it with cleanrun seal -log or benchmark seal -log"}
	}
	if run := l.run(e); run != nil {
		return &Refusal{RegisterAgain, fmt.Sprintf("another REGISTER of run %s", hexRun(r.Run)), fmt.Sprintf("no more than one, which is entry %d", run.registered), "each run draws a new id: start it again"}
	}
	thumb := e.key.Thumbprint()
	if at, ok := l.attempts[attemptKey{trialOf(thumb, r), r.Attempt}]; ok {
		return &Refusal{RegisterAgain, fmt.Sprintf("another run of %.80q, trial %d, attempt %d", r.Benchmark+"/"+r.Task, r.Trial, r.Attempt), fmt.Sprintf("no more than one, which is entry %d", at), "count the next attempt, and give a reason for it"}
	}
	return nil
}

// Apply takes e, which is in the log at index, into account. Entries are applied
// in the order of the log. One that Check refuses changes nothing: so a reader of
// a log that holds contradictions can go on.
func (l *Ledger) Apply(e *Entry, index uint64) {
	if _, ok := l.Index(e.leaf); ok {
		return
	}
	if l.refuse(e) != nil {
		return
	}
	l.entries[leafKey(e.leaf[:24])] = index
	switch e.kind {
	case KindSeal:
		n, d := l.number(e), e.body.seal.Digest
		if !slices.ContainsFunc(l.seals[d], func(s sealedBy) bool { return s.issuer == n }) {
			l.seals[d] = append(l.seals[d], sealedBy{n, index})
		}
	case KindRegister:
		l.register(e, index)
	case KindCheckpoint:
		run := l.run(e)
		run.last, run.size, run.root = index, e.body.head.Size, e.body.head.Root
		run.checkpoints++
	case KindFinal:
		run := l.run(e)
		run.last, run.size, run.root, run.final = index, e.body.final.Head.Size, e.body.final.Head.Root, true
		if named := e.body.final.Checkpoints; named != uint64(run.checkpoints) {
			l.hidden = append(l.hidden, Hidden{e.key.Thumbprint(), e.Run(), named, uint64(run.checkpoints), index})
		}
	}
}

func (l *Ledger) register(e *Entry, index uint64) {
	r := &e.body.register
	key := runKey{l.number(e), r.Run}
	l.runs[key] = uint32(len(l.states))
	l.states = append(l.states, runState{registered: index, last: index})
	trial := trialOf(e.key.Thumbprint(), r)
	l.attempts[attemptKey{trial, r.Attempt}] = index
	if _, ok := l.attempts[attemptKey{trial, r.Attempt - 1}]; !ok && r.Attempt > 1 {
		l.missing = append(l.missing, Missing{Issuer: e.key.Thumbprint(), Run: r.Run, Attempt: r.Attempt, Index: index})
	}
}

// number gives the issuer of e a number.
func (l *Ledger) number(e *Entry) issuer {
	thumb := e.key.Thumbprint()
	n, ok := l.issuers[thumb]
	if !ok {
		n = issuer(len(l.thumbs))
		l.issuers[thumb] = n
		l.thumbs = append(l.thumbs, thumb)
	}
	return n
}

// Index finds an applied entry by its leaf hash.
func (l *Ledger) Index(leaf [32]byte) (uint64, bool) {
	i, ok := l.entries[leafKey(leaf[:24])]
	return i, ok
}

// Seal finds the first SEAL over a digest, by any owner.
func (l *Ledger) Seal(digest [32]byte) (index uint64, ok bool) {
	list := l.seals[digest]
	if len(list) == 0 {
		return 0, false
	}
	return list[0].index, true
}

// SealBy finds the first SEAL over a digest by the owner with this thumbprint.
func (l *Ledger) SealBy(digest, owner [32]byte) (index uint64, ok bool) {
	n, known := l.issuers[owner]
	for _, s := range l.seals[digest] {
		if known && s.issuer == n {
			return s.index, true
		}
	}
	return 0, false
}

// A Run is registered and has no FINAL.
type Run struct {
	Issuer      [32]byte // thumbprint
	ID          [16]byte
	Registered  uint64       // index of its REGISTER
	Last        uint64       // index of its last CHECKPOINT, else of its REGISTER
	Head        journal.Head // of the last CHECKPOINT; size 0 without one
	Checkpoints uint64       // in the log
}

// Open lists the runs without FINAL in the order of their registration.
func (l *Ledger) Open() []Run {
	var list []Run
	for key, i := range l.runs {
		if s := l.states[i]; !s.final {
			list = append(list, Run{l.thumbs[key.issuer], key.run, s.registered, s.last, journal.Head{Run: key.run, Size: s.size, Root: s.root}, uint64(s.checkpoints)})
		}
	}
	slices.SortFunc(list, func(a, b Run) int { return cmp.Compare(a.Registered, b.Registered) })
	return list
}

// Missing is an attempt above 1 that was registered when the one before it was
// not. A REGISTER of that one later on does not heal it: attempts are counted in
// the order in which they are made.
type Missing struct {
	Issuer  [32]byte // thumbprint
	Run     [16]byte // that was registered
	Attempt uint32   // of it
	Index   uint64   // of its REGISTER
}

// AttemptsMissing lists them in the order of the log.
func (l *Ledger) AttemptsMissing() []Missing { return slices.Clone(l.missing) }

// Hidden is a FINAL that names another number of CHECKPOINTs than the log has of
// its run. A runner who lost an answer names fewer. So does one who logged the
// heads of two journals under one registration, to choose between them: the
// CHECKPOINTs that are left out are of the other.
type Hidden struct {
	Issuer [32]byte // thumbprint
	Run    [16]byte
	Named  uint64 // by the FINAL
	Logged uint64 // before it
	Index  uint64 // of the FINAL
}

// CheckpointsHidden lists them in the order of the log.
func (l *Ledger) CheckpointsHidden() []Hidden { return slices.Clone(l.hidden) }

// Conflicts are keys of what e says: two entries can contradict each other only
// if they share one. Who adds entries from many goroutines holds a lock for each
// key, taken in the order given, from Check until the entry has its index and is
// applied; else the log can get them in an order that its ledger refuses.
func (e *Entry) Conflicts() [][32]byte {
	thumb := e.key.Thumbprint()
	run := e.Run()
	key := func(parts ...[]byte) [32]byte { return sha256.Sum256(slices.Concat(parts...)) }
	switch e.kind {
	case KindRegister:
		trial := trialOf(thumb, &e.body.register)
		keys := [][32]byte{key([]byte("run"), thumb[:], run[:]), key([]byte("trial"), trial[:])}
		slices.SortFunc(keys, func(a, b [32]byte) int { return slices.Compare(a[:], b[:]) })
		return keys
	case KindCheckpoint, KindFinal, KindAttest:
		return [][32]byte{key([]byte("run"), thumb[:], run[:])}
	case KindSeal: // contradicts none, but who was first is asked for
		return [][32]byte{key([]byte("seal"), e.body.seal.Digest[:])}
	}
	return [][32]byte{key([]byte("entry"), e.leaf[:])}
}

package witness

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// Options of a Server.
type Options struct {
	// Dir holds what was cosigned last, one file a log. It is made if it is
	// absent: see the package comment before an old one is given up.
	Dir string
	// Keys cosign, all of them each time. One name may have an Ed25519 and an ML-DSA-44 key.
	Keys []*proof.Cosigner
	// Logs are witnessed. A log's name is its origin.
	Logs []receipt.PublicKey
	// Now is the clock of the cosignatures; nil is the system's.
	Now func() time.Time
	// Conflict is called with two checkpoints that a log signed and that cannot
	// be of one tree: the evidence of a split view. It may be called from many
	// goroutines, and often with the same. nil leaves them unreported.
	Conflict func(cosigned, submitted []byte)
}

// A Server is a witness: an http.Handler of POST /add-checkpoint. It answers with
// the status codes of c2sp.org/tlog-witness, and with one line of text that says
// what it got and what it wants.
type Server struct {
	mux      *http.ServeMux
	lock     io.Closer
	keys     []*proof.Cosigner
	logs     map[string]*witnessed
	now      func() time.Time
	conflict func(cosigned, submitted []byte)
}

// witnessed is a log as far as it was cosigned. The lock makes checking and
// persisting one step.
type witnessed struct {
	key  receipt.PublicKey
	file string

	mu   sync.Mutex
	last *proof.Verified // nil: nothing yet
}

// NewServer starts a witness over its folder. One process has the folder at a
// time: tlog.ErrInUse.
func NewServer(o Options) (*Server, error) {
	s := &Server{mux: http.NewServeMux(), keys: o.Keys, logs: map[string]*witnessed{}, now: o.Now, conflict: o.Conflict}
	if s.now == nil {
		s.now = time.Now
	}
	if s.conflict == nil {
		s.conflict = func(_, _ []byte) {}
	}
	if len(o.Keys) == 0 || len(o.Logs) == 0 {
		return nil, fmt.Errorf("witness: got %d keys and %d logs, want at least one of each", len(o.Keys), len(o.Logs))
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if s.lock, err = tlog.LockFolder(o.Dir); err != nil {
		return nil, err
	}
	for _, key := range o.Logs {
		if err := s.open(o.Dir, key); err != nil {
			return nil, errors.Join(err, s.lock.Close())
		}
	}
	s.mux.HandleFunc("POST /add-checkpoint", s.addCheckpoint)
	return s, nil
}

// open reads what was cosigned last of a log. What cannot be read is an error: to
// take it for nothing would be to forget.
func (s *Server) open(dir string, key receipt.PublicKey) error {
	if _, ok := s.logs[key.Name()]; ok {
		return fmt.Errorf("witness: got two keys of the log %s, want one", key.Name())
	}
	if key.Alg() != receipt.Ed25519 {
		return fmt.Errorf("witness: log %s: got a key of %v, want Ed25519", key.Name(), key.Alg())
	}
	name := sha256.Sum256([]byte(key.Name()))
	l := &witnessed{key: key, file: filepath.Join(dir, hex.EncodeToString(name[:]))}
	note, err := regular.Read(l.file, proof.MaxNote)
	if errors.Is(err, fs.ErrNotExist) {
		s.logs[key.Name()] = l
		return nil
	}
	if err != nil {
		return err
	}
	if l.last, err = verify(note, key); err != nil {
		return fmt.Errorf("%s: what was cosigned last of %s cannot be used; restore the file, or make a new witness with a new key: %w", l.file, key.Name(), err)
	}
	s.logs[key.Name()] = l
	return nil
}

func verify(note []byte, key receipt.PublicKey) (*proof.Verified, error) {
	u, err := proof.ParseCheckpoint(note)
	if err != nil {
		return nil, err
	}
	return u.Verify(key)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close gives the folder up. Requests must have ended.
func (s *Server) Close() error { return s.lock.Close() }

// refusal is an answer other than 200.
type refusal struct {
	status int
	text   string
	size   bool // text is the size that was cosigned last
}

func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, text: fmt.Sprintf(format, args...)}
}

func (s *Server) addCheckpoint(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var large *http.MaxBytesError
	var lines []byte
	var no *refusal
	switch {
	case errors.As(err, &large):
		no = refuse(http.StatusRequestEntityTooLarge, "got more than %d bytes, want at most that", maxRequest)
	case err != nil:
		no = refuse(http.StatusBadRequest, "got a body that breaks off: %v", err)
	default:
		lines, no = s.witness(body)
	}
	if no != nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if no.size {
			w.Header().Set("Content-Type", sizeType)
		}
		w.WriteHeader(no.status)
		fmt.Fprintln(w, no.text)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write(lines)
}

// witness is add-checkpoint, in the order of the page.
func (s *Server) witness(body []byte) ([]byte, *refusal) {
	old, path, u, err := parseRequest(body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	next := u.Checkpoint()
	l, ok := s.logs[next.Origin]
	if !ok {
		return nil, refuse(http.StatusNotFound, "got a checkpoint of %.80q, want one of a log that is witnessed here", next.Origin)
	}
	v, err := u.Verify(l.key)
	if err != nil {
		return nil, refuse(http.StatusForbidden, "%v", err)
	}
	if old > next.Size {
		return nil, refuse(http.StatusBadRequest, "got old size %d and a checkpoint of size %d, want the old size first", old, next.Size)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.follow(l, old, path, v)
}

// follow cosigns a checkpoint if it follows from the last. It is called with the
// log's lock.
func (s *Server) follow(l *witnessed, old uint64, path [][32]byte, v *proof.Verified) ([]byte, *refusal) {
	next, last := v.Checkpoint(), proof.Checkpoint{}
	if l.last != nil {
		last = l.last.Checkpoint()
	}
	switch {
	case l.last != nil && next.Size == last.Size && next.Root != last.Root:
		// Whatever the old size: both are signed by the log.
		s.conflict(l.last.Note(), v.Note())
		if old == last.Size {
			return nil, refuse(http.StatusConflict, "got root %x at size %d, want %x, which was cosigned: the log shows two trees", next.Root, next.Size, last.Root)
		}
		fallthrough
	case old != last.Size:
		return nil, &refusal{http.StatusConflict, fmt.Sprint(last.Size), true}
	case (old == 0 || old == next.Size) && len(path) > 0:
		return nil, refuse(http.StatusUnprocessableEntity, "got a proof of %d hashes from size %d to %d, want none", len(path), old, next.Size)
	case 0 < old && old < next.Size:
		if err := proof.Consistency(old, next.Size, path, last.Root, next.Root); err != nil {
			return nil, refuse(http.StatusUnprocessableEntity, "from size %d to %d: %v", old, next.Size, err)
		}
	}
	lines, err := s.cosign(v)
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, "%v", err)
	}
	if l.last == nil || next.Size > last.Size {
		// On the disk before the signature leaves: a witness that forgets can be
		// made to sign two trees.
		if err := durable.WriteFile(l.file, v.Note(), 0o600); err != nil {
			return nil, refuse(http.StatusServiceUnavailable, "the checkpoint could not be kept, so it is not cosigned: %v", err)
		}
		l.last = v
	}
	return lines, nil
}

func (s *Server) cosign(v *proof.Verified) (lines []byte, err error) {
	now := s.now().Unix()
	if now <= 0 {
		return nil, fmt.Errorf("the clock is at %d, want a time after 1970", now)
	}
	for _, k := range s.keys {
		line, err := k.Cosign(v, uint64(now))
		if err != nil {
			return nil, err
		}
		lines = append(lines, line...)
	}
	return lines, nil
}

package registry

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
)

// maxDiscard is how much of a body that is too large is read.
const maxDiscard = 256 << 10

// answerWithin bounds one request, waiting for publication and cosignatures included.
const answerWithin = 60 * time.Second

// HandlerOptions of a Handler. Zero values are defaults.
type HandlerOptions struct {
	// Dir is the folder of an embedded log, from which tiles are served as they
	// lie there. Without it entry bundles are made from the log, and there are no
	// hash tiles.
	Dir string
	// InFlight is how many requests are answered at a time; more get 503. 512 if 0.
	InFlight int
	// PerSecond is how many requests one address may make in a second, and twice
	// as many at once; more get 429. No limit if 0.
	PerSecond int
}

type handler struct {
	service *Service
	root    *os.Root
	metrics *metrics
}

// Handler serves a log over HTTP: spec/log.md, "HTTP". Close gives the folder up.
func Handler(s *Service, o HandlerOptions) (h http.Handler, close func() error, err error) {
	root, err := openRoot(o.Dir)
	if err != nil {
		return nil, nil, err
	}
	in := &handler{service: s, root: root, metrics: newMetrics()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /entries", in.add)
	mux.HandleFunc("GET /entries/{index}", in.receipt)
	mux.HandleFunc("GET /.well-known/scitt-keys", in.keys)
	mux.HandleFunc("GET /.well-known/scitt-keys/{kid}", in.oneKey)
	mux.HandleFunc("GET /checkpoint", in.checkpoint)
	mux.HandleFunc("GET /tile/", in.tiles)
	mux.HandleFunc("GET /cleanrun/v1/entry/{index}", in.entry)
	mux.HandleFunc("GET /cleanrun/v1/seal/{digest}", in.seal)
	mux.HandleFunc("GET /cleanrun/v1/proofs", in.proofs)
	mux.HandleFunc("GET /cleanrun/v1/key", in.vkey)
	mux.HandleFunc("GET /healthz", in.healthz)
	mux.HandleFunc("GET /metrics", in.writeMetrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(&http.Request{Method: http.MethodGet, URL: r.URL, Host: r.Host}); pattern != "/" || r.URL.Path == "/entries" {
			plainProblem(w, http.StatusMethodNotAllowed, "got %.20q for %.80q", r.Method, r.URL.Path)
			return
		}
		plainProblem(w, http.StatusNotFound, "there is no %.80q here", r.URL.Path)
	})
	close = func() error {
		if root == nil {
			return nil
		}
		return root.Close()
	}
	return in.limit(mux, o), close, nil
}

// add is SCRAPI's registration of a signed statement.
func (h *handler) add(w http.ResponseWriter, r *http.Request) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != typeCOSE {
		plainProblem(w, http.StatusUnsupportedMediaType, "got content type %.80q, want %s", r.Header.Get("Content-Type"), typeCOSE)
		return
	}
	if r.Header.Get("Content-Encoding") != "" {
		plainProblem(w, http.StatusUnsupportedMediaType, "got content encoding %.80q, want none", r.Header.Get("Content-Encoding"))
		return
	}
	if r.ContentLength > tlog.MaxEntry {
		io.CopyN(io.Discard, r.Body, maxDiscard) // or the client would not read the answer
		tooLarge(w)
		return
	}
	statement, err := io.ReadAll(http.MaxBytesReader(w, r.Body, tlog.MaxEntry))
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			tooLarge(w)
			return
		}
		plainProblem(w, http.StatusBadRequest, "the body ended early or came too slowly")
		return
	}
	began := time.Now()
	logged, err := h.service.Add(r.Context(), statement)
	h.metrics.added(time.Since(began), err)
	if err != nil {
		writeProblem(w, err)
		return
	}
	w.Header().Set("Location", "/entries/"+strconv.FormatUint(logged.Index, 10))
	send(w, http.StatusCreated, typeCOSE, logged.Receipt)
}

func tooLarge(w http.ResponseWriter) {
	plainProblem(w, http.StatusRequestEntityTooLarge, "want at most %d bytes: what is larger is logged by its digest", tlog.MaxEntry)
}

func send(w http.ResponseWriter, status int, contentType string, b []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	if w.Header().Get("Cache-Control") == "" {
		w.Header().Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	w.Write(b)
}

// answer sends what a query found, or its problem.
func answer(w http.ResponseWriter, contentType string, b []byte, err error) {
	if err != nil {
		writeProblem(w, err)
		return
	}
	send(w, http.StatusOK, contentType, b)
}

// parseNumber reads a decimal number in its one spelling.
func parseNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("got %.40q, want a decimal number", text)
	}
	return n, nil
}

// number reads the index in the path; it has answered if !ok.
func number(w http.ResponseWriter, r *http.Request) (n uint64, ok bool) {
	n, err := parseNumber(r.PathValue("index"))
	if err != nil {
		plainProblem(w, http.StatusBadRequest, "%v", err)
	}
	return n, err == nil
}

func (h *handler) receipt(w http.ResponseWriter, r *http.Request) {
	if i, ok := number(w, r); ok {
		b, err := h.service.Receipt(r.Context(), i)
		answer(w, typeCOSE, b, err)
	}
}

func (h *handler) entry(w http.ResponseWriter, r *http.Request) {
	if i, ok := number(w, r); ok {
		b, err := h.service.Entry(r.Context(), i)
		answer(w, typeCOSE, b, err)
	}
}

func (h *handler) checkpoint(w http.ResponseWriter, r *http.Request) {
	b, err := h.service.Checkpoint(r.Context())
	answer(w, typeText, b, err)
}

func (h *handler) keys(w http.ResponseWriter, r *http.Request) {
	send(w, http.StatusOK, typeCBOR, receipt.COSEKeySet([]receipt.PublicKey{h.service.Key()}))
}

// oneKey finds a key by its kid, as receipts have it, in hex.
func (h *handler) oneKey(w http.ResponseWriter, r *http.Request) {
	key := h.service.Key()
	kid := key.Thumbprint()
	if r.PathValue("kid") != hex.EncodeToString(kid[:]) {
		plainProblem(w, http.StatusNotFound, "this log's key is %x", kid)
		return
	}
	send(w, http.StatusOK, typeCBOR, receipt.COSEKey(key))
}

func (h *handler) vkey(w http.ResponseWriter, r *http.Request) {
	send(w, http.StatusOK, typeText, []byte(h.service.Key().String()+"\n"))
}

func (h *handler) seal(w http.ResponseWriter, r *http.Request) {
	text := r.PathValue("digest")
	d, err := hex.DecodeString(text)
	if err != nil || len(d) != 32 || hex.EncodeToString(d) != text {
		plainProblem(w, http.StatusBadRequest, "got %.80q, want a SHA-256 in 64 lower-case hex digits", text)
		return
	}
	index, err := h.service.Seal(r.Context(), [32]byte(d))
	answer(w, typeText, fmt.Appendf(nil, "%d\n", index), err)
}

// proofsAnswer is the body of an answer to /cleanrun/v1/proofs.
type proofsAnswer struct {
	Checkpoint  []byte       `cbor:"1,keyasint"`
	Inclusion   [][][32]byte `cbor:"2,keyasint"`
	Consistency [][]byte     `cbor:"3,keyasint"`
	Receipt     []byte       `cbor:"4,keyasint"`
}

func (h *handler) proofs(w http.ResponseWriter, r *http.Request) {
	indexes, from, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		plainProblem(w, http.StatusBadRequest, "%v", err)
		return
	}
	p, err := h.service.Proofs(r.Context(), indexes, from)
	if err != nil {
		writeProblem(w, err)
		return
	}
	b, err := dcbor.Marshal(&proofsAnswer{p.Checkpoint, p.Inclusion, p.Consistency, p.Receipt})
	if err != nil {
		plainProblem(w, http.StatusInternalServerError, "the answer cannot be encoded")
		return
	}
	send(w, http.StatusOK, typeCBOR, b)
}

// parseQuery reads index=N&index=N&from=N in the order given. An index list of
// the allowed length fits into the header that the server reads.
func parseQuery(raw string) (indexes, from []uint64, err error) {
	if raw == "" {
		return nil, nil, nil
	}
	for pair := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		n, err := parseNumber(value)
		if err != nil {
			return nil, nil, err
		}
		switch name {
		case "index":
			indexes = append(indexes, n)
		case "from":
			from = append(from, n)
		default:
			return nil, nil, fmt.Errorf("got %.40q, want index or from", name)
		}
		if err := checkCounts(indexes, from); err != nil {
			return nil, nil, err
		}
	}
	return indexes, from, nil
}

func (h *handler) healthz(w http.ResponseWriter, r *http.Request) {
	ctx, stop := context.WithTimeout(r.Context(), 5*time.Second)
	defer stop()
	if err := h.service.Health(ctx); err != nil {
		plainProblem(w, http.StatusServiceUnavailable, "entries are not taken now: %v", err)
		return
	}
	send(w, http.StatusOK, typeText, []byte("ok\n"))
}

package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/cleanrun-dev/cleanrun/tlog/entry"
)

// Bounds of a server, against clients that are slow on purpose and many.
const (
	maxConnections = 1024
	maxHeader      = 96 << 10 // bytes; MaxIndexes in a query have 80 KiB
	idleFor        = 60 * time.Second
	stopWithin     = 90 * time.Second
	defaultFlight  = 512
)

// How long a client may take to send a request. Tests are less patient.
var headerWithin, bodyWithin = 10 * time.Second, 20 * time.Second

// Serve answers requests until ctx ends. Then it takes no more, answers those that
// it has, and returns nil. It closes l.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerWithin,
		ReadTimeout:       bodyWithin,
		WriteTimeout:      bodyWithin + answerWithin,
		IdleTimeout:       idleFor,
		MaxHeaderBytes:    maxHeader,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(netutil.LimitListener(l, maxConnections)) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stopping, stop := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer stop()
	err := server.Shutdown(stopping)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// limit bounds how many requests there are, and how long each may take.
func (h *handler) limit(next http.Handler, o HandlerOptions) http.Handler {
	flight := make(chan struct{}, max(o.InFlight, 0))
	if o.InFlight == 0 {
		flight = make(chan struct{}, defaultFlight)
	}
	rates := newRates(o.PerSecond)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := &statusWriter{ResponseWriter: w}
		defer func() { h.metrics.answered(status.status) }()
		w = status
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil && !rates.allow(host, time.Now()) {
			plainProblem(w, http.StatusTooManyRequests, "want at most %d requests a second", o.PerSecond)
			return
		}
		select {
		case flight <- struct{}{}:
			defer func() { <-flight }()
		default:
			plainProblem(w, http.StatusServiceUnavailable, "%d requests are being answered already", cap(flight))
			return
		}
		h.metrics.inFlight.Add(1)
		defer h.metrics.inFlight.Add(-1)
		ctx, stop := context.WithTimeout(r.Context(), answerWithin)
		defer stop()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets MaxBytesReader tell the server to close the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// rates has a bucket of tokens for each address. When there are too many addresses
// all are forgotten: the memory is bounded, and a flood of addresses is not what
// this limit is against.
type rates struct {
	perSecond float64
	mu        sync.Mutex
	buckets   map[string]bucket
}

type bucket struct {
	tokens float64
	at     time.Time
}

const maxBuckets = 16 << 10

func newRates(perSecond int) *rates {
	return &rates{perSecond: float64(perSecond), buckets: map[string]bucket{}}
}

func (l *rates) allow(host string, now time.Time) bool {
	if l.perSecond <= 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.buckets[host]
	if !ok {
		if len(l.buckets) >= maxBuckets {
			clear(l.buckets)
		}
		b = bucket{2 * l.perSecond, now}
	}
	b.tokens = min(2*l.perSecond, b.tokens+l.perSecond*now.Sub(b.at).Seconds())
	b.at = now
	ok = b.tokens >= 1
	if ok {
		b.tokens--
	}
	l.buckets[host] = b
	return ok
}

// metrics counts what happened since the start. It is written in the text format
// of Prometheus, version 0.0.4.
type metrics struct {
	inFlight atomic.Int64
	addTime  atomic.Int64 // nanoseconds

	mu       sync.Mutex
	adds     map[string]uint64 // by outcome: logged, unavailable, or the id of a refusal
	statuses map[int]uint64
}

func newMetrics() *metrics {
	m := &metrics{adds: map[string]uint64{"logged": 0, "unavailable": 0}, statuses: map[int]uint64{}}
	for _, id := range entry.IDs {
		m.adds[string(id)] = 0
	}
	return m
}

func (m *metrics) added(d time.Duration, err error) {
	outcome := "logged"
	if r, ok := errors.AsType[*entry.Refusal](err); ok {
		outcome = string(r.ID)
	} else if err != nil {
		outcome = "unavailable"
	}
	m.addTime.Add(int64(d))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adds[outcome]++
}

func (m *metrics) answered(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.statuses[status]++
}

func (h *handler) writeMetrics(w http.ResponseWriter, r *http.Request) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	_, cp, err := h.service.checkpoint(r.Context())
	if err == nil {
		line("# TYPE cleanrun_log_size gauge\ncleanrun_log_size %d", cp.Size)
	}
	_, faults := h.service.Faults()
	line("# TYPE cleanrun_log_faults gauge\ncleanrun_log_faults %d", faults)
	m := h.metrics
	line("# TYPE cleanrun_log_requests_in_flight gauge\ncleanrun_log_requests_in_flight %d", m.inFlight.Load())
	line("# TYPE cleanrun_log_add_seconds_total counter\ncleanrun_log_add_seconds_total %.6f", time.Duration(m.addTime.Load()).Seconds())
	m.mu.Lock()
	line("# TYPE cleanrun_log_adds_total counter")
	for _, k := range sortedKeys(m.adds) {
		line("cleanrun_log_adds_total{outcome=%q} %d", k, m.adds[k])
	}
	line("# TYPE cleanrun_log_requests_total counter")
	for _, k := range sortedKeys(m.statuses) {
		line("cleanrun_log_requests_total{status=\"%d\"} %d", k, m.statuses[k])
	}
	m.mu.Unlock()
	send(w, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", []byte(b.String()))
}

func sortedKeys[K int | string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
)

// Media types of the HTTP interface.
const (
	typeCOSE    = "application/cose"
	typeCBOR    = "application/cbor"
	typeText    = "text/plain; charset=utf-8"
	typeProblem = "application/concise-problem-details+cbor" // RFC 9290, section 6.1
)

// maxProblem is the largest problem in bytes that a client reads.
const maxProblem = 16 << 10

// A problem is a concise problem details map (RFC 9290, section 2). Facts is a
// custom entry, whose key is a URI (section 3.2): the parts of a refusal.
type problem struct {
	Title  string `cbor:"-1,keyasint"`
	Detail string `cbor:"-2,keyasint"`
	Facts  *facts `cbor:"tag:cleanrun.dev#refusal,omitempty"`
}

type facts struct {
	Got  string `cbor:"got"`
	Want string `cbor:"want"`
	Hint string `cbor:"hint"`
}

// statusOf is the status of a refusal.
func statusOf(id entry.ID) int {
	switch id {
	case entry.NotAnEntry:
		return http.StatusBadRequest
	case entry.BadSignature:
		return http.StatusUnauthorized
	case entry.UnknownIssuer:
		return http.StatusForbidden
	}
	return http.StatusConflict
}

// writeProblem answers with an error.
func writeProblem(w http.ResponseWriter, err error) {
	var r *entry.Refusal
	if errors.As(err, &r) {
		detail := r.Error()
		if r.Hint != "" {
			detail += "; " + r.Hint
		}
		sendProblem(w, statusOf(r.ID), problem{string(r.ID), detail, &facts{r.Got, r.Want, r.Hint}})
		return
	}
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, ErrNoEntry), errors.Is(err, ErrNoSeal):
		status = http.StatusNotFound
	case errors.Is(err, context.Canceled): // of the request: nobody reads this
	}
	plainProblem(w, status, "%v", err)
}

// plainProblem answers with the name that HTTP has for a status.
func plainProblem(w http.ResponseWriter, status int, format string, args ...any) {
	sendProblem(w, status, problem{Title: http.StatusText(status), Detail: fmt.Sprintf(format, args...)})
}

func sendProblem(w http.ResponseWriter, status int, p problem) {
	b, err := dcbor.Marshal(&p)
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", typeProblem)
	h.Set("Cache-Control", "no-store")
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	w.Write(b)
}

// parseProblem is the error that an answer stands for.
func parseProblem(status int, contentType string, body []byte) error {
	var p problem
	if contentType != typeProblem || dcbor.Unmarshal(body, &p) != nil {
		p = problem{Title: http.StatusText(status), Detail: fmt.Sprintf("got status %d and no problem details", status)}
	}
	if p.Facts != nil && status != http.StatusServiceUnavailable {
		return &entry.Refusal{ID: entry.ID(p.Title), Got: p.Facts.Got, Want: p.Facts.Want, Hint: p.Facts.Hint}
	}
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout:
		return fmt.Errorf("%w: %s: %.500q", ErrUnavailable, p.Title, p.Detail)
	case http.StatusNotFound:
		return fmt.Errorf("%w: %.500q", ErrNoEntry, strings.TrimPrefix(p.Detail, ErrNoEntry.Error()+": "))
	}
	return fmt.Errorf("the log answered %d %.100s: %.500q", status, p.Title, p.Detail)
}

package registry

import "time"

// ClientsWithin makes servers that start from now on less patient, or as they were
// with zeros.
func ClientsWithin(header, body time.Duration) (undo func()) {
	h, b := headerWithin, bodyWithin
	headerWithin, bodyWithin = header, body
	return func() { headerWithin, bodyWithin = h, b }
}

// Allow is the rate limit of one address.
func Allow(perSecond int) func(host string, now time.Time) bool { return newRates(perSecond).allow }

// ParseTile reads a path below /tile/.
func ParseTile(rest string) (path string, ok bool) {
	t, ok := parseTile(rest)
	return t.path(), ok
}

// ParseQuery reads the query of proofs.
var ParseQuery = parseQuery

// ParseProblem is the error of an answer.
var ParseProblem = parseProblem

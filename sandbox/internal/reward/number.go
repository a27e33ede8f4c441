// Package reward reads what a grader left: reward files, the last line of its
// output, and the files that must not have been changed around it.
//
// All of it is written by programs of the run. So files are opened without following
// links, only regular ones are read, and of those a bounded part.
package reward

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"regexp"
	"strings"

	"github.com/cleanrun-dev/cleanrun/journal"
)

// MaxFile is the size up to which a reward file is read, in bytes.
const MaxFile = 64 << 10

// number is that of JSON (RFC 8259, section 6), with a short exponent.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?$`)

// Number is the decimal number that text consists of, blanks around it aside, in
// the journal's spelling (journal.Decimal): rounded to nine digits after the point,
// half away from zero, and without zeros at its end.
func Number(text string) (string, bool) {
	text = strings.Trim(text, " \t\r\n")
	if len(text) > 64 || !number.MatchString(text) {
		return "", false
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return "", false
	}
	v := strings.TrimRight(strings.TrimRight(r.FloatString(9), "0"), ".")
	if v == "-0" {
		v = "0"
	}
	return v, journal.Decimal(v)
}

// Text is the number of a reward.txt.
func Text(content []byte) (string, bool) { return Number(string(content)) }

// JSON is the number of a reward.json: an object whose member "reward" is a number,
// or that has no such member and exactly one number. A name that stands twice
// makes it worthless: readers differ on which one counts.
func JSON(content []byte) (string, bool) {
	d := json.NewDecoder(bytes.NewReader(content))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	members := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return "", false
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return "", false
		}
		if _, twice := members[name.(string)]; twice {
			return "", false
		}
		members[name.(string)] = v
	}
	if _, err := d.Token(); err != nil {
		return "", false
	}
	if _, err := d.Token(); err != io.EOF {
		return "", false
	}
	if v, ok := members["reward"]; ok {
		return Number(string(v))
	}
	found := ""
	for _, v := range members {
		if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
			continue
		}
		if found != "" {
			return "", false
		}
		found = string(v)
	}
	return Number(found)
}

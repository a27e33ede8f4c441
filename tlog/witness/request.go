package witness

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// Bounds of c2sp.org/tlog-witness and of ours.
const (
	maxPath    = 63 // consistency proof lines
	maxRequest = proof.MaxNote + maxPath*45 + 64
	sizeType   = "text/x.tlog.size" // of a conflict that tells the size
)

// formatRequest is the body of add-checkpoint.
func formatRequest(old uint64, path [][32]byte, note []byte) []byte {
	b := fmt.Appendf(nil, "old %d\n", old)
	for _, h := range path {
		b = append(base64.StdEncoding.AppendEncode(b, h[:]), '\n')
	}
	return append(append(b, '\n'), note...)
}

// parseRequest reads the body of add-checkpoint. There is one spelling of each:
// what it read, written again, is what it was given.
func parseRequest(body []byte) (old uint64, path [][32]byte, u *proof.Unverified, err error) {
	if len(body) > maxRequest {
		return 0, nil, nil, fmt.Errorf("got more than %d bytes, want at most that", maxRequest)
	}
	head, note, ok := bytes.Cut(body, []byte("\n\n"))
	if !ok {
		return 0, nil, nil, fmt.Errorf("got no empty line, want old size, proof, an empty line and a checkpoint")
	}
	lines := bytes.Split(head, []byte("\n"))
	if len(lines) > 1+maxPath {
		return 0, nil, nil, fmt.Errorf("got %d proof lines, want at most %d", len(lines)-1, maxPath)
	}
	digits, ok := bytes.CutPrefix(lines[0], []byte("old "))
	if old, err = strconv.ParseUint(string(digits), 10, 64); err != nil || !ok {
		return 0, nil, nil, fmt.Errorf("got %.40q as first line, want \"old \" and a size", lines[0])
	}
	for _, l := range lines[1:] {
		h, err := base64.StdEncoding.Strict().DecodeString(string(l))
		if err != nil || len(h) != 32 {
			return 0, nil, nil, fmt.Errorf("got proof line %.60q, want base64 of 32 bytes", l)
		}
		path = append(path, [32]byte(h))
	}
	if u, err = proof.ParseCheckpoint(note); err != nil {
		return 0, nil, nil, err
	}
	if !bytes.Equal(formatRequest(old, path, note), body) {
		return 0, nil, nil, fmt.Errorf("got another spelling of the request, want no leading zeros and no other line ends")
	}
	return old, path, u, nil
}

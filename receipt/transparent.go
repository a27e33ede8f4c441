package receipt

import (
	"bytes"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// maxReceipts is the most COSE receipts in a transparent statement.
const maxReceipts = 64

const transparentObject = "transparent statement"

// Attach returns the transparent statement (RFC 9943, section 7) of an entry: the
// same COSE_Sign1 with receipts, at least one, in label 394 of the unprotected
// header. It looks at the frames only: neither the entry nor a receipt is
// verified, nor is it checked that they belong together.
func Attach(entry []byte, receipts ...[]byte) ([]byte, error) {
	frame, err := entryFrame(entry)
	if err == nil {
		err = checkReceipts(receipts)
	}
	if err != nil {
		return nil, err.in(transparentObject)
	}
	header, fail := dcbor.Marshal(map[int64][][]byte{labelReceipts: receipts})
	if fail != nil {
		return nil, fmt.Errorf("%s: %w", transparentObject, fail)
	}
	return formatFrame(frame, header)
}

// Detach takes a transparent statement apart: the entry as it was signed and
// logged, and the receipts. It accepts what Attach writes and nothing else, and
// verifies nothing. The error is an *Error.
func Detach(transparent []byte) (entry []byte, receipts [][]byte, err error) {
	frame, receipts, fail := detach(transparent)
	if fail != nil {
		return nil, nil, fail.in(transparentObject)
	}
	if entry, err = formatFrame(frame, []byte{0xa0}); err != nil {
		return nil, nil, err
	}
	return entry, receipts, nil
}

func detach(transparent []byte) (frame sign1Frame, receipts [][]byte, _ *Error) {
	const most = MaxEntry + maxReceipts*(maxForeignReceipt+8) + 16
	if len(transparent) == 0 || len(transparent) > most {
		return frame, nil, refuse(StageSize, fmt.Sprintf("%d bytes", len(transparent)), fmt.Sprintf("1 to %d", most), "")
	}
	frame, err := parseFrame(transparent)
	if err != nil {
		return frame, nil, err
	}
	var header map[int64]cbor.RawMessage
	if err := decode(frame.Unprotected, &header); err != nil {
		return frame, nil, err
	}
	raw, ok := header[labelReceipts]
	if !ok || len(header) != 1 {
		return frame, nil, refuse(StageUnprotected, fmt.Sprintf("%x", clip(frame.Unprotected)), "label 394 alone, an array of COSE receipts", "a statement without receipts is not transparent: get its receipt from the log")
	}
	if err := field(raw, &receipts, StageUnprotected, "an array of byte strings"); err != nil {
		return frame, nil, err
	}
	if err := checkReceipts(receipts); err != nil {
		return frame, nil, err
	}
	frame.Unprotected = []byte{0xa0}
	entry, fail := formatFrame(frame, frame.Unprotected)
	if fail != nil {
		return frame, nil, refuse(StageCBOR, fail.Error(), "a COSE_Sign1", "")
	}
	frame, err = entryFrame(entry)
	return frame, receipts, err
}

// entryFrame reads the frame of a statement as it is logged: with an empty
// unprotected header (RFC 9943, section 6.3).
func entryFrame(entry []byte) (frame sign1Frame, _ *Error) {
	if len(entry) == 0 || len(entry) > MaxEntry {
		return frame, refuse(StageSize, fmt.Sprintf("an entry of %d bytes", len(entry)), fmt.Sprintf("1 to %d", MaxEntry), "")
	}
	frame, err := parseFrame(entry)
	if err != nil {
		return frame, err
	}
	if !bytes.Equal(frame.Unprotected, []byte{0xa0}) {
		return frame, refuse(StageUnprotected, fmt.Sprintf("%x", clip(frame.Unprotected)), "a0: the empty map", "the entry is the statement as it was signed")
	}
	if bytes.Equal(frame.Payload, []byte{0xf6}) {
		return frame, refuse(StagePayload, "a detached payload (null)", "a byte string", "")
	}
	var payload []byte
	if err := field(frame.Payload, &payload, StagePayload, "a byte string"); err != nil {
		return frame, err
	}
	return frame, nil
}

// checkReceipts looks at number, size and tag.
func checkReceipts(receipts [][]byte) *Error {
	if n := len(receipts); n == 0 || n > maxReceipts {
		return refuse(StageUnprotected, fmt.Sprintf("%d receipts", n), fmt.Sprintf("1 to %d", maxReceipts), "")
	}
	for _, r := range receipts {
		if len(r) > maxForeignReceipt {
			return refuse(StageSize, fmt.Sprintf("a receipt of %d bytes", len(r)), fmt.Sprintf("at most %d", maxForeignReceipt), "")
		}
		if _, err := parseFrame(r); err != nil {
			return err.in("receipt in a transparent statement")
		}
	}
	return nil
}

// formatFrame writes the frame with another unprotected header.
func formatFrame(f sign1Frame, unprotected []byte) ([]byte, error) {
	f.Unprotected = unprotected
	body, err := dcbor.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", transparentObject, err)
	}
	return append([]byte{0xd2}, body...), nil
}

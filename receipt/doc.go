// Package receipt signs and checks the signed parts of a clean-run receipt:
// COSE_Sign1 (RFC 9052), DSSE and the *.cleanrun bundle that carries them. It
// works on bytes. spec/bundle.md is the wire format.
//
// Limits first. The package says who signed which bytes and nothing about
// whether they are true; deriving the verdict is attest's business. It knows no
// certificates, no clock and no revocation: a key is trusted because a policy
// file pins it. A key, a name or a key id inside a file is never trusted. It
// knows two algorithms, Ed25519 and ECDSA P-256 with SHA-256, and one encoding
// of every object.
//
// Parsing gives an Unverified or UnverifiedEnvelope; Verify with a pinned key
// gives a Signed or Envelope. Only those hold a payload that somebody signed.
//
//	u, err := receipt.ParseSign1(receipt.KindReceipt, b.Receipt)
//	s, err := u.Verify(runnerKey)
//	e, err := receipt.ParseDSSE(b.Statement)
//	v, err := e.Verify(runnerKey)
//	err = receipt.SamePayload(s.Payload(), v.Payload())
package receipt

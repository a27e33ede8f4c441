// Package proof reads, checks and makes what proves that a transparency log holds
// an entry: checkpoints and their cosignatures, proof files and the policy that
// says which of them are enough. It works on bytes and knows no network, clock or
// file. The formats are those of c2sp.org: signed-note, tlog-checkpoint,
// tlog-cosignature, tlog-proof and tlog-policy.
//
// Limits first. A checkpoint says what one log signed. That the log shows the same
// tree to everybody is the word of its witnesses, and which of them suffice is the
// policy's. Only Ed25519 signatures (type 0x01) make a checkpoint; witnesses sign
// with Ed25519 (0x04) or ML-DSA-44 (0x06). A timestamp is the witness's word.
//
// Everything is spelled in one way: strict base64, no leading zeros, no second
// signature of one key. Parsing gives an Unverified, Verify with a pinned key a
// Verified; only that can be held against a policy.
//
//	u, err := proof.ParseCheckpoint(note)
//	log, ok := policy.FindLog(u.Checkpoint().Origin)
//	v, err := u.Verify(log.Key)
//	quorum, err := policy.Check(v)
//	err = proof.Inclusion(index, v.Checkpoint().Size, leaf, path, v.Checkpoint().Root)
package proof

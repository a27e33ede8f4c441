// Package journal writes and reads the record of one run.
//
// Limits first. A journal says what its recorder saw. That the recorder saw
// everything, and that path digests are those of the true paths, is asserted;
// the second can be checked later by disclosing rows. An open journal, one
// without a final row, is a valid prefix and never evidence for CLEAN. A journal
// that passes the Checker is well formed, not authentic: compare its Head with a
// signed one.
//
// A journal is a sequence of rows (Row), each deterministic CBOR, in an
// append-only file of length-prefixed records, with a tree hash over all rows
// (RFC 9162) as its Head. Each row commits to a private Detail. One Secret of 32
// bytes yields all salts and the key of the path digests; Disclosure opens one
// row. The format, the rules and the closed list of their names: spec/journal.md.
//
// The recorder uses a Writer (Create). Verifiers use ParseRow, Checker, ParseHead
// and Disclosure.Verify, which take bytes and have no clock, file system or
// network.
package journal

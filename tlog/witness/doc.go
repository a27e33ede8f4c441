// Package witness asks witnesses for cosignatures of a log's checkpoints, and is
// such a witness (c2sp.org/tlog-witness).
//
// Limits first. A cosignature says that the witness saw no other tree of this log
// up to this size, and when; it says nothing about the entries. A witness knows
// what is in its folder: one that lost the folder, or runs from an old copy, has
// forgotten what it signed, and must get a new key.
package witness

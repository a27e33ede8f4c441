// Package trillian keeps a log on Trillian, over gRPC. Whatever database Trillian
// uses (PostgreSQL, MySQL, CockroachDB, Spanner) is the same here; it is tested on
// PostgreSQL.
//
// Limits first. Trillian does not sign its roots: we do, and only such as follow
// from the last that we signed, which is kept in a folder here. So a database that
// was rolled back or changed is refused. Whoever loses the folder loses the log: an
// older copy of it would sign a second history. Nobody else may sign for the tree.
//
// The leaves are the entries, hashed as RFC 9162 says, so proofs are the same as
// those of a log in a folder. Trillian keeps equal entries once.
package trillian

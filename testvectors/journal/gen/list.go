package main

import (
	"bytes"
	"slices"
)

// A vector is one file.
type vector struct {
	name    string
	stage   string // rule that must refuse it, or "ok"
	row     int    // row at which it must
	redteam string // row of the attack list, or ""
	comment string
	rows    [][]byte
	file    []byte   // instead of rows, if the framing is at fault
	signed  [][]byte // rows of the head that the reader trusts, if they differ
}

func same(r []table) []table { return r }

func vectors() []vector {
	good := edit(same)
	v := []vector{
		{name: "ok", stage: "ok", comment: "a closed journal that keeps every rule", rows: good},
		{name: "ok-open", stage: "ok", redteam: "8", comment: "without a final row: valid, open, never CLEAN", rows: good[:rFinal]},
		{name: "ok-start-only", stage: "ok", comment: "the least journal: a start row", rows: good[:1]},
	}
	v = append(v, chain(good)...)
	v = append(v, spellings(good)...)
	v = append(v, starts()...)
	v = append(v, finals()...)
	v = append(v, gradings()...)
	return append(v, fields()...)
}

func flip(rows [][]byte, at int) [][]byte {
	rows = slices.Clone(rows)
	rows[at] = bytes.Clone(rows[at])
	i := bytes.Index(rows[at], make([]byte, 32)) // the commitment of base is zero
	rows[at][i+5] ^= 0x10
	return rows
}

// closed takes /work/sub away from the workspace; the file that is read in it has
// the given flags.
func closed(flags uint64) [][]byte {
	return edit(func(r []table) []table {
		s := baseStart()
		s[10] = list(root("/", 2, 2), root("/dev", 1, 5), root("/srv/data", 2, 1), root("/usr", 0, 2), root("/work", 1, 0), root("/work/sub", 4, 6))
		r[rStart][kStart] = s.encode()
		r[rRead][kFlags] = num(flags)
		return r
	})
}

// chain is the attacks on the order and number of rows.
func chain(good [][]byte) []vector {
	bodies := func(r []table) []table { return r }
	swapped := slices.Clone(good)
	swapped[rReadOwn], swapped[rAbsent] = swapped[rAbsent], swapped[rReadOwn]
	spliced := edit(func(r []table) []table {
		other := baseStart()
		other[2] = bstr(bytes.Repeat([]byte{8}, 16))
		r[rStart][kStart] = other.encode()
		return r
	})
	return []vector{
		{name: "bit-flipped", stage: "head", row: 20, redteam: "1", comment: "one bit of a commitment", rows: flip(good, rRead), signed: good},
		{name: "tail-dropped-old-head", stage: "head", row: 17, redteam: "2", comment: "the last 3 rows are gone, the old head was kept", rows: good[:17], signed: good},
		{name: "rows-swapped", stage: "seq", row: rReadOwn, redteam: "4", comment: "two rows changed places", rows: swapped},
		{name: "rows-swapped-renumbered", stage: "head", row: 20, redteam: "4", comment: "two rows changed places and numbers", signed: good,
			rows: edit(func(r []table) []table { r[rReadOwn], r[rAbsent] = r[rAbsent], r[rReadOwn]; return r })},
		{name: "row-repeated", stage: "seq", row: rReadOwn + 1, redteam: "5", comment: "a row twice", rows: slices.Insert(slices.Clone(good), rReadOwn+1, good[rReadOwn])},
		{name: "row-missing", stage: "seq", row: rAbsent, redteam: "6", comment: "a gap in the numbers", rows: slices.Delete(slices.Clone(good), rAbsent, rAbsent+1)},
		{name: "row-missing-renumbered", stage: "final", row: rFinal - 1, redteam: "6", comment: "a row left out, the rest renumbered, the final counts kept",
			rows: edit(func(r []table) []table {
				number(r, nil)
				return slices.Delete(r, rAbsent, rAbsent+1)
			})},
		{name: "other-run-spliced", stage: "head", row: 20, redteam: "7", comment: "the rows of this run under the start row of another", rows: spliced, signed: good},
		{name: "final-twice", stage: "closed", row: rFinal + 1, redteam: "9", comment: "two final rows", rows: edit(func(r []table) []table { return append(r, row(opFinal, nil)) })},
		{name: "row-of-two-hashes", stage: "encoding", row: 0, redteam: "10", comment: "64 bytes that are two hashes of the tree in place of the rows",
			rows: [][]byte{slices.Concat(treeHash(good[:16]), treeHash(good[16:]))}, signed: good},
		{name: "row-after-final", stage: "closed", row: rFinal + 1, redteam: "15", comment: "a program's row after the final row",
			rows: edit(func(r []table) []table { return append(r, row(opExit, table{kProc: num(1)})) })},
		{name: "empty", stage: "head", row: 0, redteam: "12", comment: "no row at all under a head of 20 rows", rows: nil, signed: good},
		{name: "time-decreases", stage: "time", row: rRead, comment: "the clock runs back", rows: late(func(r []table) []table { r[rRead][kTime] = num(1); return r })},
		{name: "phase-decreases", stage: "phase", row: rRead, comment: "back to the setup phase", rows: set(rRead, table{kPhase: num(0)})},
		{name: "phase-unknown", stage: "phase", row: rRead, comment: "phase 3", rows: set(rRead, table{kPhase: num(3)})},
		{name: "dir-number-skipped", stage: "dir", row: rDirSub, comment: "directory 4 after 2", rows: set(rDirSub, table{kChild: num(4)})},
		{name: "dir-parent-undeclared", stage: "dir", row: rDirSub, comment: "below directory 9", rows: set(rDirSub, table{kPath: ref(9, "/work/sub")})},
		{name: "dir-declared-twice", stage: "dir", row: rDirSub, comment: "a second number for /work", rows: set(rDirSub, table{kPath: ref(0, "/work")})},
		{name: "dir-used-undeclared", stage: "dir", row: rRead, comment: "a path in directory 4 before it is declared", rows: set(rRead, table{kPath: ref(4, "/work2/z")})},
		{name: "fork-number-skipped", stage: "proc", row: rFork2, comment: "process 3 after 1", rows: set(rFork2, table{kChild: num(3)})},
		{name: "fork-by-unborn", stage: "proc", row: rFork2, comment: "a parent that was never born", rows: set(rFork2, table{kProc: num(7)})},
		{name: "fork-by-ended", stage: "proc", row: rExit1 + 1, comment: "a parent that has ended", rows: add(rFinal, row(opFork, table{kProc: num(1), kChild: num(3)}))},
		{name: "exit-twice", stage: "proc", row: rExit2 + 1, comment: "a process ends twice", rows: add(rExit2, row(opExit, table{kProc: num(2)}))},
		{name: "unborn-acts", stage: "proc", row: rRead, comment: "a row of process 2 before its birth", rows: set(rRead, table{kProc: num(2)})},
		{name: "recorder-opens", stage: "proc", row: rRead, comment: "an open by process 0", rows: set(rRead, table{kProc: num(0)})},
		{name: "scope-flag-missing", stage: "scope", row: rOutside, redteam: "57", comment: "out of scope, not flagged", rows: set(rOutside, table{kFlags: num(fRead)})},
		{name: "scope-flag-wrong", stage: "scope", row: rRead, redteam: "57", comment: "in scope, flagged", rows: set(rRead, table{kFlags: num(fRead | fScope)})},
		{name: "scope-prefix-name", stage: "scope", row: rOutside, redteam: "55", comment: "/work2 passed off as in /work",
			rows: set(rOutside, table{kFlags: num(fRead), kPath: ref(0, "/work2")})},
		{name: "scope-hidden-not-flagged", stage: "scope", row: rAbsent, redteam: "57", comment: "a miss on a hidden file, not flagged", rows: set(rAbsent, table{kFlags: num(fRead | fHidden)})},
		{name: "scope-denied-not-flagged", stage: "scope", row: rAbsent, redteam: "57", comment: "a refusal outside every root, not flagged", rows: set(rAbsent, table{kResult: num(13)})},
		{name: "ok-scope-write-refused", stage: "ok", comment: "a refused write in a read-only root is in scope",
			rows: set(rAbsent, table{kResult: num(30), kFlags: num(fWrite), kPath: ref(1, "/usr/x")})},
		{name: "scope-write-in-read-root", stage: "scope", row: rRead, redteam: "57", comment: "a write in a read-only root, not flagged",
			rows: set(rRead, table{kFlags: num(fRead | fWrite), kPath: ref(1, "/usr/x")})},
		{name: "scope-closed-not-flagged", stage: "scope", row: rRead, redteam: "57", comment: "a file in a closed tree inside the workspace, not flagged", rows: closed(fRead)},
		{name: "ok-scope-closed", stage: "ok", comment: "the same, flagged", rows: closed(fRead | fScope)},
		{name: "ok-opath", stage: "ok", comment: "O_PATH outside every root is in scope",
			rows: edit(func(r []table) []table {
				r[rOutside] = row(opOpen, table{kProc: num(1), kFlags: num(fPath), kPath: ref(4, "/work2/y")})
				return bodies(r)
			})},
	}
}

func spellings(good [][]byte) []vector {
	at := func(name, redteam, comment string, old, new string) vector {
		return vector{name: name, stage: "encoding", row: rRead, redteam: redteam, comment: comment, rows: swapBytes(rRead, old, new)}
	}
	r := string(good[rRead])
	long := frame(good)
	return []vector{
		at("key-twice", "59", "key 3 twice", "\x03\x01\x04\x01", "\x03\x01\x03\x01"),
		at("integer-two-bytes", "60", "phase 1 as 1801", "\x03\x01\x04", "\x03\x18\x01\x04"),
		at("integer-nine-bytes", "60", "phase 1 in nine bytes", "\x03\x01\x04", "\x03\x1b\x00\x00\x00\x00\x00\x00\x00\x01\x04"),
		at("integer-float", "60", "phase as 1.0", "\x03\x01\x04", "\x03\xf9\x3c\x00\x04"),
		at("integer-true", "60", "phase as true", "\x03\x01\x04", "\x03\xf5\x04"),
		at("integer-null", "60", "phase as null", "\x03\x01\x04", "\x03\xf6\x04"),
		at("integer-text", "60", "phase as text", "\x03\x01\x04", "\x03\x61\x31\x04"),
		at("integer-bignum", "60", "phase as bignum", "\x03\x01\x04", "\x03\xc2\x41\x01\x04"),
		at("integer-negative", "60", "phase -1", "\x03\x01\x04", "\x03\x20\x04"),
		at("integer-too-large", "60", "phase 256", "\x03\x01\x04", "\x03\x19\x01\x00\x04"),
		at("indefinite-map", "61", "a map without a length", r, "\xbf"+r[1:]+"\xff"),
		at("indefinite-bytes", "61", "a byte string in chunks", "\x0c\x58\x20", "\x0c\x5f\x58\x20"),
		at("trailing-byte", "61", "one byte after the row", r, r+"\x00"),
		at("byte-order-mark", "61", "UTF-8 mark before the row", r, "\xef\xbb\xbf"+r),
		at("cut", "61", "the last byte is gone", r, r[:len(r)-1]),
		at("key-unknown", "62", "key 21", r, "\xae"+r[1:]+"\x15\x00"),
		at("key-missing", "62", "without key 2", "\x02\x18\x50", ""),
		at("key-order", "", "keys 3 and 4 changed places", "\x03\x01\x04\x01", "\x04\x01\x03\x01"),
		at("child-zero", "", "key 15 with 0, which is left out", r, "\xae"+r[1:]+"\x0f\x00"),
		at("commit-short", "", "31 bytes", "\x0c\x58\x20\x00", "\x0c\x58\x1f"),
		at("path-null", "", "null for a path", "\x0d\x82\x03\x58\x20"+string(digestOf("/work/sub/in")), "\x0d\xf6"),
		at("path-long", "", "an array of 3", "\x0d\x82\x03\x58\x20"+string(digestOf("/work/sub/in")), "\x0d\x83\x03\x58\x20"+string(digestOf("/work/sub/in"))+"\x00"),
		{name: "nested", stage: "encoding", row: 0, redteam: "63", comment: "100,000 arrays in one another", rows: [][]byte{append(bytes.Repeat([]byte{0x81}, 1000), 0x80)}},
		at("length-two-gigabytes", "63", "a commitment of 2^31 bytes", "\x0c\x58\x20", "\x0c\x5a\x80\x00\x00\x00"),
		{name: "record-two-gigabytes", stage: "frame", row: 20, redteam: "63", comment: "a record of 2^31 bytes", file: append(slices.Clone(long), 0x80, 0, 0, 0), signed: good},
		{name: "record-empty", stage: "frame", row: 20, comment: "a record of 0 bytes", file: append(slices.Clone(long), 0, 0, 0, 0), signed: good},
		{name: "tail-torn", stage: "frame", row: rFinal, comment: "the last record is cut", file: long[:len(long)-1], signed: good},
		{name: "tail-torn-length", stage: "frame", row: 20, comment: "two bytes of a length", file: append(slices.Clone(long), 0, 0), signed: good},
	}
}

func starts() []vector {
	bad := func(name, comment string, keys table) vector {
		return vector{name: "start-" + name, stage: "start", row: 0, comment: comment, rows: start(keys)}
	}
	dup := list(root("/", 2, 2), root("/work", 1, 0), root("/work", 1, 0))
	return []vector{
		{name: "start-missing", stage: "start", row: 0, comment: "begins with a fork", rows: edit(func(r []table) []table { return r[rFork:] })},
		{name: "start-twice", stage: "start", row: 1, comment: "two start rows", rows: add(1, row(opStart, table{kPhase: num(0), kStart: baseStart().encode()}))},
		{name: "start-late", stage: "start", row: 0, comment: "time 5 in row 0", rows: late(func(r []table) []table { r[0][kTime] = num(5); return r })},
		bad("version", "another version", table{1: tstr("cleanrun/journal/v2")}),
		bad("run-zero", "a run id that was not drawn", table{2: bstr(make([]byte, 16))}),
		bad("task-without-benchmark", "a task of no benchmark", table{3: tstr("")}),
		bad("trial-zero", "a task without trial", table{5: num(0)}),
		bad("seal-zero", "a task without seal", table{8: bstr(make([]byte, 32))}),
		bad("control-character", "a line break in a name that is shown", table{19: tstr("agent\nCLEAN")}),
		bad("text-long", "1,025 bytes", table{19: tstr(repeat("a", 1025))}),
		bad("recorder-empty", "no recorder named", table{14: tstr("")}),
		bad("roots-empty", "no roots", table{10: list()}),
		bad("roots-unsorted", "/work before /", table{10: list(root("/work", 1, 0), root("/", 2, 2))}),
		bad("roots-repeated", "/work twice", table{10: dup}),
		bad("roots-not-clean", "a root with ..", table{10: list(root("/", 2, 2), root("/a/../b", 0, 1), root("/work", 1, 0))}),
		bad("roots-foreign-system", "/home as a system directory", table{10: list(root("/", 2, 2), root("/home", 0, 2), root("/work", 1, 0))}),
		bad("roots-system-written", "/usr as a writable system directory", table{10: list(root("/", 2, 2), root("/usr", 1, 2), root("/work", 1, 0))}),
		bad("roots-all", "/ as a tree", table{10: list(root("/", 0, 2), root("/work", 1, 0))}),
		bad("roots-mode", "an unknown mode", table{10: list(root("/", 2, 2), root("/work", 5, 0))}),
		bad("roots-no-tree-class", "a root that takes access away, as a grant", table{10: list(root("/", 2, 2), root("/work", 1, 0), root("/work/x", 4, 1))}),
		bad("roots-closed-mode", "a closed root that may be read", table{10: list(root("/", 2, 2), root("/work", 1, 0), root("/work/x", 0, 6))}),
		bad("workspace-two", "two workspaces", table{10: list(root("/", 2, 2), root("/w", 1, 0), root("/work", 1, 0))}),
		bad("workspace-none", "no workspace", table{10: list(root("/", 2, 2), root("/work", 1, 1))}),
		bad("workspace-other", "another path than the root's", table{11: tstr("/work2")}),
		bad("channel-unknown", "a channel that is not known", table{13: list(list(tstr("fd9"), tstr("model")))}),
		bad("channel-role", "a role that is not known", table{13: list(list(tstr("stdin"), tstr("friend")))}),
		bad("channel-twice", "stdin twice", table{13: list(list(tstr("stdin"), tstr("driver")), list(tstr("stdin"), tstr("model")))}),
		bad("blind-unsorted", "blind spots out of order", table{16: list(tstr("b"), tstr("a"))}),
		{name: "ok-start-logged", stage: "ok", comment: "registration and freshness, of the most bytes and the fewest", rows: start(table{17: bstr(make([]byte, 16384)), 18: bstr([]byte{1})})},
		bad("registration-alone", "a registration without freshness", table{17: bstr([]byte{1})}),
		bad("freshness-alone", "a freshness without registration", table{18: bstr([]byte{1})}),
		bad("registration-empty", "no bytes of registration", table{17: bstr(nil), 18: bstr([]byte{1})}),
		bad("freshness-long", "16,385 bytes of freshness", table{17: bstr([]byte{1}), 18: bstr(make([]byte, 16385))}),
		{name: "ok-start-marker", stage: "ok", comment: "the marker of a planted file", rows: start(table{22: bstr(make([]byte, 32))})},
		bad("marker-short", "31 bytes of a marker", table{22: bstr(make([]byte, 31))}),
		bad("marker-without-task", "a marker in a run without a task", table{3: tstr(""), 4: tstr(""), 5: num(0), 6: num(0), 7: bstr(make([]byte, 32)), 8: bstr(make([]byte, 32)), 22: bstr(make([]byte, 32))}),
		{name: "start-marker-empty", stage: "encoding", row: 0, comment: "no bytes for no marker", rows: start(table{22: bstr(nil)})},
		{name: "start-key-missing", stage: "encoding", row: 0, redteam: "62", comment: "key 18 left out", rows: edit(func(r []table) []table {
			s := baseStart()
			delete(s, 18)
			r[0][kStart] = s.encode()
			return r
		})},
		{name: "start-key-unknown", stage: "encoding", row: 0, redteam: "62", comment: "key 23", rows: start(table{23: num(1)})},
		{name: "start-roots-null", stage: "encoding", row: 0, redteam: "60", comment: "null for an empty list", rows: start(table{13: null})},
	}
}

func finals() []vector {
	bad := func(name, comment string, keys table) vector {
		return vector{name: "final-" + name, stage: "final", row: rFinal, comment: comment, rows: final(keys)}
	}
	return []vector{
		bad("outcome", "an unknown outcome", table{1: num(5)}),
		bad("code", "completed with code 1", table{2: num(1)}),
		bad("code-range", "code 256", table{1: num(2), 2: num(256)}),
		bad("failed-zero", "failed with code 0", table{1: num(2)}),
		bad("counts-empty", "no counts", table{3: list()}),
		bad("born", "three processes", table{4: num(3)}),
		bad("ended", "one ended", table{5: num(1)}),
		bad("void", "one void", table{8: num(1)}),
		bad("delta", "more unexplained than changed", table{10: list(num(0), num(1))}),
		{name: "final-lost", stage: "final", row: rFinal + 1, comment: "a lost row, no event lost", rows: edit(func(r []table) []table {
			r = slices.Insert(r, rFinal, row(opLost, nil))
			number(r, table{9: num(0)})
			return r
		})},
		{name: "ok-lost", stage: "ok", redteam: "50", comment: "a lost row, counted: valid, never CLEAN", rows: add(rFinal, row(opLost, nil))},
	}
}

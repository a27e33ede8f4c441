package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

func baseStart() table {
	return table{
		1: tstr("cleanrun/journal/v1"), 2: bstr(bytes.Repeat([]byte{9}, 16)),
		3: tstr("tiny-bench"), 4: tstr("first-task"), 5: num(1), 6: num(1),
		7: bstr(bytes.Repeat([]byte{1}, 32)), 8: bstr(bytes.Repeat([]byte{2}, 32)), 9: bstr(bytes.Repeat([]byte{3}, 32)),
		10: list(root("/", 2, 2), root("/dev", 1, 5), root("/srv/data", 2, 1), root("/usr", 0, 2), root("/work", 1, 0)),
		11: tstr("/work"), 12: {0xf4}, 13: list(), 14: tstr("cleanrun 1"), 15: tstr("hand-written"), 16: list(),
		17: null, 18: null, 19: tstr("agent"), 20: tstr("model"), 21: null,
	}
}

// base is a journal that keeps every rule. Numbers, times and the final counts
// are filled in by number.
func base() []table {
	return []table{
		row(opStart, table{kPhase: num(0), kStart: baseStart().encode()}),
		row(opDir, table{kChild: num(1), kPath: ref(0, "/usr")}),
		row(opFork, table{kChild: num(1)}),
		row(opExec, table{kProc: num(1), kDir: num(in), kOrigin: num(input), kSize: num(1000), kObject: num(1), kPath: ref(1, "/usr/sh")}),
		row(opArgv, table{kProc: num(1), kDir: num(in), kOrigin: num(driver), kSize: num(9), kFlags: num(fText)}),
		row(opDir, table{kChild: num(2), kPath: ref(0, "/work")}),
		row(opOpen, table{kProc: num(1), kDir: num(out), kOrigin: num(run), kSize: num(3), kObject: num(2), kFlags: num(fWrite | fCreate | fText), kPath: ref(2, "/work/out")}),
		row(opDir, table{kChild: num(3), kPath: ref(2, "/work/sub")}),
		row(opOpen, table{kProc: num(1), kDir: num(in), kOrigin: num(input), kSize: num(50), kObject: num(3), kFlags: num(fRead), kPath: ref(3, "/work/sub/in")}),
		row(opWrote, table{kProc: num(1), kDir: num(out), kOrigin: num(run), kSize: num(5), kObject: num(2), kPath: ref(2, "/work/out")}),
		row(opOpen, table{kProc: num(1), kDir: num(in), kOrigin: num(run), kSize: num(5), kObject: num(2), kFlags: num(fRead), kPath: ref(2, "/work/out")}),
		row(opOpen, table{kProc: num(1), kResult: num(2), kFlags: num(fRead), kPath: ref(0, "/absent")}),
		row(opDir, table{kChild: num(4), kPath: ref(0, "/work2")}),
		row(opOpen, table{kProc: num(1), kDir: num(in), kOrigin: num(input), kSize: num(10), kObject: num(4), kFlags: num(fRead | fScope), kPath: ref(4, "/work2/y")}),
		row(opFork, table{kProc: num(1), kChild: num(2)}),
		row(opArgv, table{kProc: num(2), kDir: num(out), kOrigin: num(run), kSize: num(4), kFlags: num(fText)}),
		row(opExit, table{kProc: num(2)}),
		row(opStdout, table{kDir: num(out), kOrigin: num(run), kSize: num(5)}),
		row(opExit, table{kProc: num(1)}),
		row(opFinal, nil),
	}
}

// Places in base.
const (
	rStart, rDirUsr, rFork, rExec, rArgv, rDirWork, rCreate, rDirSub, rRead, rWrote = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	rReadOwn, rAbsent, rOutside, rFork2, rArgv2, rExit2, rStdout, rExit1, rFinal    = 10, 11, 13, 14, 15, 16, 17, 18, 19
)

// number fills in what follows from the order of the rows. Keys of the final
// value can be replaced.
func number(rows []table, replaced table) {
	counts := map[[2]byte]uint64{}
	var born, ended, void, lost uint64
	for i, r := range rows {
		r[kSeq], r[kTime] = num(uint64(i)), num(uint64(i)*10)
		if r[kOp][0] == opFinal && r[kFinal] == nil {
			var c [][]byte
			for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b [2]byte) int { return bytes.Compare(a[:], b[:]) }) {
				c = append(c, list(num(uint64(k[0])), num(uint64(k[1])), num(counts[k])))
			}
			f := table{1: num(1), 2: num(0), 3: list(c...), 4: num(born), 5: num(ended), 6: num(7), 7: num(7), 8: num(void), 9: num(lost), 10: list(num(1), num(0))}
			maps.Copy(f, replaced)
			r[kFinal] = f.encode()
		}
		op := plain(r[kOp])
		counts[[2]byte{r[kPhase][0], op}]++
		switch op {
		case opFork:
			born++
		case opExit:
			ended++
		case opVoid:
			void++
		case opLost:
			lost++
		}
	}
}

// plain reads a number below 256.
func plain(b []byte) byte { return b[len(b)-1] }

// edit changes base before it is numbered; the rows then keep all rules but one.
func edit(f func(r []table) []table) [][]byte {
	rows := f(base())
	number(rows, nil)
	return encode(rows)
}

// late changes base after it was numbered.
func late(f func(r []table) []table) [][]byte {
	rows := base()
	number(rows, nil)
	return encode(f(rows))
}

// set replaces keys of one row of base, before numbering.
func set(at int, keys table) [][]byte {
	return edit(func(r []table) []table { maps.Copy(r[at], keys); return r })
}

// start replaces keys of the start.
func start(keys table) [][]byte {
	s := baseStart()
	maps.Copy(s, keys)
	return set(rStart, table{kStart: s.encode()})
}

// final replaces keys of the final value.
func final(keys table) [][]byte {
	rows := base()
	number(rows, keys)
	return encode(rows)
}

func add(at int, r ...table) [][]byte {
	return edit(func(rows []table) []table { return slices.Insert(rows, at, r...) })
}

func drop(key int, at int) [][]byte {
	return edit(func(r []table) []table { delete(r[at], key); return r })
}

func encode(rows []table) [][]byte {
	var b [][]byte
	for _, r := range rows {
		b = append(b, r.encode())
	}
	return b
}

// swapBytes changes one row's bytes.
func swapBytes(at int, old, new string) [][]byte {
	rows := late(func(r []table) []table { return r })
	if bytes.Count(rows[at], []byte(old)) != 1 {
		panic(fmt.Sprintf("row %d: not exactly one place of %x", at, old))
	}
	rows[at] = bytes.Replace(rows[at], []byte(old), []byte(new), 1)
	return rows
}

package opening

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/journal"
)

// An inode of the model.
type inode struct {
	object  uint32 // 0: the recorder has not met it
	text    string
	shown   string // in the last row with its content
	known   bool   // shown is
	pending bool
	path    string // that it was opened for writing at
}

// A model is a file system that tells its rows as the recorder does: what is written is
// dated at the next open, or at the end.
type model struct {
	fs      map[string]*inode
	f       *files
	objects uint32
	seq     uint64
	blind   bool // an operation whose outcome rows do not tell in full
}

const root = "/w/"

func (m *model) emit(r journal.Row, d journal.Detail) {
	r.Seq = m.seq
	m.seq++
	m.f.row(&r, &d)
}

func (m *model) meet(n *inode) uint32 {
	if n.object == 0 {
		m.objects++
		n.object = m.objects
	}
	return n.object
}

func showing(r journal.Row, text string) (journal.Row, []byte) {
	sum := sha256.Sum256([]byte(text))
	r.Size = uint64(len(text))
	return r, sum[:]
}

func (m *model) date(n *inode) {
	if n.pending && (!n.known || n.shown != n.text) {
		r, sum := showing(journal.Row{Op: journal.OpWrote, Object: n.object, Dir: journal.DirOut}, n.text)
		m.emit(r, journal.Detail{Path: n.path, SHA256: sum})
	}
	n.pending, n.shown, n.known = false, n.text, true
}

func (m *model) open(p string, flags journal.Flags) {
	n := m.fs[p]
	m.meet(n)
	m.date(n)
	r, sum := showing(journal.Row{Op: journal.OpOpen, Object: n.object, Dir: journal.DirIn, Flags: flags}, n.text)
	m.emit(r, journal.Detail{Path: root + p, SHA256: sum})
}

func (m *model) cut(p string, flags journal.Flags) {
	n := m.fs[p]
	m.emit(journal.Row{Op: journal.OpOpen, Object: m.meet(n), Flags: journal.FlagWrite | flags}, journal.Detail{Path: root + p})
	n.text, n.shown, n.known = "", "", true
}

func (m *model) write(p, text string) {
	n := m.fs[p]
	n.text, n.pending, n.path = n.text+text, true, root+p
}

// rename moves a name, or a folder of names.
func (m *model) rename(from, to string) {
	r := journal.Row{Op: journal.OpRename}
	if n := m.fs[from]; n != nil {
		if n == m.fs[to] {
			m.emit(r, journal.Detail{Path: root + from, Path2: root + to})
			return
		}
		r.Object = n.object
		if n.object != 0 {
			n.path = root + to
		}
		m.fs[to] = n
		delete(m.fs, from)
	} else {
		r.Flags = journal.FlagDirectory
		for name, n := range m.fs {
			if rest, ok := strings.CutPrefix(name, from+"/"); ok {
				m.fs[to+"/"+rest] = n
				delete(m.fs, name)
			}
		}
	}
	m.emit(r, journal.Detail{Path: root + from, Path2: root + to})
}

func (m *model) below(dir string) (n int) {
	for name := range m.fs {
		if strings.HasPrefix(name, dir+"/") {
			n++
		}
	}
	return n
}

func TestFilesAgainstModel(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 8))
	dirs := []string{"d", "e", "f", "f/g"}
	names := []string{"a.py", "b.py"}
	var all []string
	for _, d := range dirs {
		for _, n := range names {
			all = append(all, d+"/"+n)
		}
	}
	held, told := 0, 0
	for round := range 4000 {
		m := &model{fs: map[string]*inode{}, f: newFiles()}
		base := map[string]content{}
		for _, p := range all[:4] {
			text := "base " + p
			base[p] = content{sha256.Sum256([]byte(text)), uint64(len(text)), true}
			m.fs[p] = &inode{text: text}
		}
		names := round%2 == 0 // with operations on names
		for step := range 12 {
			p, q := all[r.IntN(len(all))], all[r.IntN(len(all))]
			text := fmt.Sprintf("r%d s%d", round, step)
			switch n := m.fs[p]; r.IntN(9) {
			case 0, 1:
				if n == nil {
					m.fs[p] = &inode{}
					m.cut(p, journal.FlagCreate)
				} else {
					m.cut(p, journal.FlagTrunc)
				}
				m.write(p, text)
			case 2:
				if n != nil {
					m.open(p, journal.FlagRead|journal.FlagWrite)
					m.write(p, text)
				}
			case 3:
				if n != nil {
					m.open(p, journal.FlagRead)
				}
			case 4:
				if n != nil {
					m.emit(journal.Row{Op: journal.OpUnlink, Object: n.object}, journal.Detail{Path: root + p})
					delete(m.fs, p)
				}
			case 5:
				if names && n != nil {
					m.blind = m.blind || n.object == 0
					m.rename(p, q)
				}
			case 6:
				if names && n != nil && m.fs[q] == nil {
					m.blind = m.blind || !n.known
					m.emit(journal.Row{Op: journal.OpLink, Object: m.meet(n)}, journal.Detail{Path: root + p, Path2: root + q})
					m.fs[q] = n
				}
			case 7:
				from, to := dirs[r.IntN(4)], dirs[r.IntN(4)]
				if names && m.below(from) > 0 && m.below(to) == 0 && !strings.HasPrefix(to, from) && !strings.HasPrefix(from, to) {
					m.blind = true // what no row named moves too
					m.rename(from, to)
				}
			case 8: // an exchange looks like a rename
				if names && n != nil && m.fs[q] != nil && n != m.fs[q] && r.IntN(4) == 0 {
					m.blind = true
					o := m.fs[q]
					m.rename(p, q)
					m.fs[p] = o
				}
			}
		}
		for _, p := range all {
			if n := m.fs[p]; n != nil {
				m.date(n)
			}
		}
		for _, p := range all {
			got, there := m.f.at(root+p, "/w", base)
			n := m.fs[p]
			if there && got.known && (n == nil || got.sum != sha256.Sum256([]byte(n.text)) || got.size != uint64(len(n.text))) {
				t.Fatalf("round %d: %s: got a content that is not there", round, p)
			}
			if !m.blind && (there != (n != nil) || there && !got.known) {
				t.Fatalf("round %d: %s: got %v, known %v, want %v", round, p, there, got.known, n != nil)
			}
			if n != nil {
				held++
				if there && got.known {
					told++
				}
			}
		}
	}
	if told*10 < held*7 {
		t.Errorf("of %d contents, got %d", held, told)
	}
}

// What rows say of a content that is not the file's own is not taken for it.
func TestContentNotKnown(t *testing.T) {
	for _, flag := range []journal.Flags{journal.FlagUnreadable, journal.FlagUnstable, journal.FlagRemoved, 0} {
		m := &model{fs: map[string]*inode{"a": {}}, f: newFiles()}
		m.cut("a", journal.FlagCreate)
		r, sum := showing(journal.Row{Op: journal.OpWrote, Object: 1, Flags: flag}, "text")
		m.emit(r, journal.Detail{Path: "/w/a", SHA256: sum})
		if got, there := m.f.at("/w/a", "/w", nil); !there || got.known != (flag == 0) {
			t.Errorf("flag %v: got %v, %v", flag, got, there)
		}
	}
}

package opening

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// What a named path needs is shown: marker, reply and opens, with contents bounded.
func TestNamedPath(t *testing.T) {
	expecting := func(reply expect.Reply, file string) func(*contraband.Set) {
		return func(s *contraband.Set) {
			s.Footprint = nil
			s.Scope.Grants = []contraband.Grant{{Path: "/named", Mode: uint8(scope.ReadOne)}}
			s.Expect = &contraband.Expect{Read: "/named", Template: "marker: " + expect.Placeholder, Reply: reply, File: file}
		}
	}
	open := func(r *recording) uint64 {
		r.objects++
		return r.store(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead, Dir: journal.DirIn, Origin: journal.OriginInput, Object: r.objects}, "/named", "planted")
	}
	said := func(r *recording, text string) uint64 {
		return r.store(journal.Row{Op: journal.OpStdout, Dir: journal.DirOut, Origin: journal.OriginRun}, "", text)
	}
	rows := func(o *attest.Openings) (out []string) {
		for _, row := range o.Rows {
			text := "-"
			if row.Content != nil {
				text = string(*row.Content)
			}
			out = append(out, fmt.Sprint(row.Seq, " ", text))
		}
		return out
	}
	t.Run("stdout", func(t *testing.T) {
		r := record(t, project, expecting(expect.Stdout, ""))
		r.begin(nil)
		a, b, c := open(r), said(r, "one"), said(r, "two")
		r.write("out.txt", "not shown")
		o, rep := r.collect("")
		if got, want := rows(o), []string{fmt.Sprint(a, " -"), fmt.Sprint(b, " one"), fmt.Sprint(c, " two")}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if seed := secret.Marker(); !bytes.Equal(o.Marker, seed[:]) || len(o.Paths) != 0 || rep.Rows != 3 || rep.Names != 0 {
			t.Errorf("got marker %x, paths %q, %d rows", o.Marker, r.names(o), rep.Rows)
		}
		for _, row := range o.Rows {
			if row.Salt != secret.Salt(row.Seq) {
				t.Errorf("row %d: got another salt", row.Seq)
			}
		}
	})
	t.Run("too much stdout", func(t *testing.T) {
		r := record(t, project, expecting(expect.Stdout, ""))
		r.begin(nil)
		a := open(r)
		said(r, strings.Repeat("x", 20<<10))
		o, _ := r.collect("")
		if got, want := rows(o), []string{fmt.Sprint(a, " -")}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("file", func(t *testing.T) {
		r := record(t, project, expecting(expect.File, "answer.txt"))
		r.begin(nil)
		o := r.create("answer.txt")
		r.wrote("answer.txt", o, "first")
		last := r.wrote("answer.txt", o, "second")
		said(r, "not shown")
		r.write("other.txt", "not shown")
		got, rep := r.collect("")
		if rows, want := rows(got), []string{fmt.Sprint(last, " second")}; !slices.Equal(rows, want) || r.names(got) != "answer.txt" || rep.Names != 0 {
			t.Errorf("got %q, %q, want %q", rows, r.names(got), want)
		}
	})
	t.Run("a reply that is a sealed file", func(t *testing.T) {
		r := record(t, project, expecting(expect.File, "answer.txt"))
		r.begin(nil)
		sum := sha256.Sum256([]byte("same"))
		last := r.add(journal.Row{Op: journal.OpWrote, Dir: journal.DirOut, Origin: journal.OriginRun, Object: r.create("answer.txt"), Size: 4},
			journal.Detail{Path: r.name("answer.txt"), SHA256: sum[:]})
		got, _ := r.collect("")
		if rows, want := rows(got), []string{fmt.Sprint(last, " same")}; !slices.Equal(rows, want) {
			t.Errorf("got %q, want %q", rows, want)
		}
		must(t, os.Remove(filepath.Join(r.at, "copy.txt")))
		got, rep := r.collect("")
		if rows, want := rows(got), []string{fmt.Sprint(last, " -")}; !slices.Equal(rows, want) || !slices.Equal(rep.Missing, []uint64{last}) {
			t.Errorf("got %q, missing %v, want %q", rows, rep.Missing, want)
		}
	})
	t.Run("no reply", func(t *testing.T) {
		r := record(t, project, expecting(expect.File, "answer.txt"))
		r.begin(nil)
		o, _ := r.collect("")
		if len(o.Rows)+len(o.Paths) != 0 || len(o.Marker) != 32 {
			t.Errorf("got %v", o)
		}
	})
	t.Run("with a footprint", func(t *testing.T) {
		r := record(t, project, func(s *contraband.Set) {
			expecting(expect.File, "answer.txt")(s)
			s.Footprint = &contraband.Footprint{Allowed: []string{"answer.txt"}}
		})
		r.begin(nil)
		r.write("answer.txt", "text")
		r.write("b.txt", "text")
		o, rep := r.collect("")
		if r.names(o) != "answer.txt b.txt" || rep.Names != 2 || len(o.Rows) != 1 {
			t.Errorf("got %q, %d names, %d rows", r.names(o), rep.Names, len(o.Rows))
		}
	})
}

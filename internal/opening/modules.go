package opening

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// versions are the contents that rows show under the name of a cached module, as far as a
// phase that the footprint bounds made them, or of a source: each once, in order.
type versions map[string][]content

// maxVersions bounds what is kept of one name.
const maxVersions = 256

// row takes the next row. A content that nobody opened or dated under the name was not
// loaded from there.
func (v versions) row(r *journal.Row, d *journal.Detail, bounded bool) {
	if r.Result != 0 || r.Op != journal.OpOpen && r.Op != journal.OpWrote || len(d.SHA256) == 0 && r.Op == journal.OpOpen {
		return
	}
	switch {
	case strings.HasSuffix(d.Path, ".py"):
	case strings.HasSuffix(d.Path, ".pyc") && bounded && r.Origin != journal.OriginInput:
	default:
		return
	}
	var c content
	c.show(r, d)
	if list := v[d.Path]; len(list) <= maxVersions && !slices.Contains(list, c) {
		v[d.Path] = append(list, c)
	}
}

// module says why a cached module counts as any file, "" if it does not, and whether it
// was not there any more when the agent's phase ended. What the run had there for a while
// counts as what it left there: a program may have loaded it.
func (x *collector) module(m footprint.Compiled) (why string, gone bool) {
	pyc, there := x.files.at(m.Path, x.start.Workspace, x.kept.base)
	if !there {
		return "", true
	}
	source, there := x.files.at(m.Source, x.start.Workspace, x.kept.base)
	if !there {
		return "there is no source of it", false
	}
	if why := x.compiles(m, pyc, source); why != "" {
		return why, false
	}
	past := x.past[m.Path]
	if len(past) > maxVersions {
		return fmt.Sprintf("it had more than %d contents", maxVersions), false
	}
	sources := append([]content{source}, x.past[m.Source]...)
	if rel, ok := below(x.start.Workspace, m.Source); ok {
		if c, ok := x.kept.base[rel]; ok {
			sources = append(sources, c)
		}
	}
	for _, old := range past {
		if old == pyc || old == empty { // an empty one is not loaded
			continue
		}
		if why := x.compiles(m, old, sources...); why != "" {
			return "for a while it was something else: " + why, false
		}
	}
	return "", false
}

// compiles says why a content is not what one of the sources compiles to.
func (x *collector) compiles(m footprint.Compiled, pyc content, sources ...content) (why string) {
	b, err := x.kept.read(pyc)
	if err != nil {
		return "its content is not kept: " + err.Error()
	}
	if x.check == nil {
		x.check = x.Compiler(x.start.Workspace)
	}
	why = "it has the size of no source that was there"
	for _, source := range sources {
		if len(sources) > 1 && !sized(b, source.size) {
			continue
		}
		text, err := x.kept.read(source)
		if err != nil {
			why = "its source is not kept: " + err.Error()
			continue
		}
		if why = x.check(m, text, b); why == "" {
			return ""
		}
	}
	return why
}

// sized tells whether a module may be of a source of this size (PEP 552): others need not
// be read. One that is too short for a header is for the compiler to refuse.
func sized(pyc []byte, size uint64) bool {
	return len(pyc) < 16 || binary.LittleEndian.Uint32(pyc[12:]) == uint32(size)
}

package canon

import "github.com/cleanrun-dev/cleanrun/contraband"

// A Stream takes content in chunks of any size and emits the same digests as
// the whole at once. An item is emitted by the call that completes it. A letter
// at the very end of a chunk waits for the next byte, which may be a mark that
// composes with it.
type Stream struct {
	f     *Fingerprinter
	text  bool
	whole bool
}

func (f *Fingerprinter) newStream(text, whole bool) *Stream {
	return &Stream{f: f, text: text, whole: whole}
}

// Chunk takes the next bytes and returns how many canonical bytes they
// completed. p is not kept.
func (s *Stream) Chunk(p []byte, emit Emit) (canonical uint64) { return 0 }

// End takes the end of the content: it emits what waited for more, and the only
// shingle of a content shorter than one window. What it emits and the
// canonical bytes that it returns belong to the last chunk. No call may follow.
func (s *Stream) End(emit Emit) (canonical uint64) { return 0 }

type tables struct{ key contraband.TaskKey }

func newTables(key contraband.TaskKey, filter []uint32) *tables { return &tables{key: key} }

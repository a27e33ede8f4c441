package seal

// A holder looks for the answers of other tasks in what a run of one task is
// given. nil looks for nothing.
type holder struct{}

type look struct{}

func (h *holder) begin(name string, id []byte) *look { return nil }
func (l *look) chunk(p []byte)                       {}
func (l *look) end()                                 {}
func (l *look) object(content []byte)                {}
func (l *look) done()                                {}

package scanner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/cleanrun-dev/cleanrun/journal"
)

// A folder is an open run folder.
type folder struct {
	root   *os.Root
	store  *os.Root
	secret journal.Secret
	files  []*os.File
}

func openFolder(run *os.Root) (*folder, error) {
	raw, err := run.ReadFile(journal.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	f := &folder{root: run}
	if len(raw) != len(f.secret) {
		return nil, fmt.Errorf("scan: secret: got %d bytes, want %d (the run folder is damaged)", len(raw), len(f.secret))
	}
	copy(f.secret[:], raw)
	if f.store, err = run.OpenRoot(ObjectsDir); err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	return f, nil
}

func (f *folder) close() {
	f.store.Close()
	for _, file := range f.files {
		file.Close()
	}
}

func (f *folder) open(name string) (io.Reader, error) {
	file, err := f.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	f.files = append(f.files, file)
	return file, nil
}

// checkpoint is the last head that the recorder synced: a crash leaves at least
// its rows. Without the file it is of no row.
func (f *folder) checkpoint() (journal.Head, error) {
	text, err := f.root.ReadFile(journal.HeadFile)
	if errors.Is(err, fs.ErrNotExist) {
		return journal.Head{}, nil
	}
	if err != nil {
		return journal.Head{}, fmt.Errorf("scan: %w", err)
	}
	return journal.ParseHead(text)
}

func (f *folder) rows() (iter.Seq2[journal.Line, error], error) {
	r, err := f.open(journal.RowsFile)
	if err != nil {
		return nil, err
	}
	return journal.Rows(r), nil
}

// details returns the function that gives the next row's detail, and one that
// ends the reading.
func (f *folder) details() (next func() ([]byte, error), stop func(), err error) {
	r, err := f.open(journal.DetailsFile)
	if err != nil {
		return nil, nil, err
	}
	pull, stop := iter.Pull2(journal.Details(r))
	return func() ([]byte, error) {
		raw, err, ok := pull()
		if !ok {
			return nil, errors.New("scan: got fewer details than rows, want one for each (the run folder is damaged)")
		}
		return raw, err
	}, stop, nil
}

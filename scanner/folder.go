package scanner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A folder is an open run folder.
type folder struct {
	root    *os.Root
	private vault.Folder
	store   objects.Source
	secret  journal.Secret
	files   []io.Closer
}

func openFolder(run *os.Root, keys *vault.Keys) (*folder, error) {
	f := &folder{root: run, private: vault.Folder{Root: run, Keys: keys}}
	var err error
	if f.secret, err = f.private.Secret(); err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	store, err := run.OpenRoot(ObjectsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("scan: the folder %s is not there: the contents were pruned, and this run cannot be attested any more (its receipts still hold): %w", ObjectsDir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	f.store = objects.Source{Root: store, Keys: keys}
	return f, nil
}

func (f *folder) close() {
	f.store.Root.Close()
	for _, file := range f.files {
		file.Close()
	}
}

func (f *folder) open(name string) (io.Reader, error) {
	file, err := regular.In(f.root, name)
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	f.files = append(f.files, file)
	return file, nil
}

// checkpoint is the last head that the recorder synced: a crash leaves at least
// its rows. Without the file it is of no row.
func (f *folder) checkpoint() (journal.Head, error) {
	text, err := regular.ReadIn(f.root, journal.HeadFile, 1<<16)
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
	r, err := f.private.Details()
	if err != nil {
		return nil, nil, fmt.Errorf("scan: %w", err)
	}
	f.files = append(f.files, r)
	pull, stop := iter.Pull2(journal.Details(r))
	return func() ([]byte, error) {
		raw, err, ok := pull()
		if !ok {
			return nil, errors.New("scan: got fewer details than rows, want one for each (the run folder is damaged)")
		}
		return raw, err
	}, stop, nil
}

package vault

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"filippo.io/age"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// OpenFolder opens the keys of a run folder. They are nil if it is not encrypted.
func OpenFolder(run *os.Root, ids []age.Identity) (*Keys, error) {
	file, err := regular.ReadIn(run, KeyFile, MaxKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	recipients, err := regular.ReadIn(run, RecipientsFile, MaxKeyFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return Open(file, string(recipients), ids)
}

// A Folder is the private half of a run folder.
type Folder struct {
	Root *os.Root
	Keys *Keys // nil if it is in clear
}

// Secret reads the journal's secret.
func (f Folder) Secret() (s journal.Secret, err error) {
	name := journal.SecretFile
	if f.Keys != nil {
		name = SecretFile
	}
	b, err := regular.ReadIn(f.Root, name, 4096)
	if err == nil && f.Keys != nil {
		b, err = f.Keys.DecryptBytes(b, int64(len(s)))
	}
	if err != nil {
		return s, err
	}
	if len(b) != len(s) {
		return s, fmt.Errorf("%s: got %d bytes, want %d (the run folder is damaged)", name, len(b), len(s))
	}
	return journal.Secret(b), nil
}

// Details opens the details, for journal.Details.
func (f Folder) Details() (io.ReadCloser, error) {
	file, err := regular.In(f.Root, journal.DetailsFile)
	if err != nil || f.Keys == nil {
		return file, err
	}
	r, err := f.Keys.OpenRecords(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{r, file}, nil
}

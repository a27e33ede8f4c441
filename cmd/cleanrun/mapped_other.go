//go:build !unix

package main

import (
	"io"
	"os"
)

// mapped reads the file where files cannot be mapped.
func mapped(f *os.File) (b []byte, release func(), err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	b, err = io.ReadAll(f)
	return b, func() {}, err
}

// readBundle reads a bundle into memory, whatever its size.
func readBundle(path string, _ int64) ([]byte, error) { return readFile(path, maxBundle) }

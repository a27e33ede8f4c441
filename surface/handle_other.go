//go:build !linux && !darwin && !windows

package surface

import (
	"errors"
	"io/fs"
	"os"
)

// handlePath cannot be answered here, so no file of a folder counts as inside it.
func handlePath(*os.File) (string, error) {
	return "", errors.New("this system does not tell where an open file lies")
}

// nonblock is not needed here: nothing is opened.
const nonblock = 0

// kept is unknown here.
func kept(fs.FileInfo) (*int64, uint32) { return nil, 0 }

//go:build unix

package regular

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Whatever has the name of a file, opening it ends, and says what it is.
func TestOnlyRegularFiles(t *testing.T) {
	dir, err := os.MkdirTemp("", "r") // short: a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, err := range []error{
		syscall.Mkfifo(at("pipe"), 0o600), os.Symlink("file", at("link")), os.Symlink("gone", at("dangling")), os.Mkdir(at("folder"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, want := range map[string]string{
		"file": "", "pipe": "pipe", "link": "symbolic link", "dangling": "symbolic link", "folder": "folder", "socket": "socket",
	} {
		for how, open := range map[string]func() ([]byte, error){
			"in": func() ([]byte, error) { return ReadIn(root, name, 4) }, "at": func() ([]byte, error) { return Read(at(name), 4) },
		} {
			done := make(chan struct{})
			var b []byte
			var err error
			go func() { b, err = open(); close(done) }()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatalf("%s %s: still waiting", how, name)
			}
			var kind *KindError
			switch {
			case want == "" && (err != nil || string(b) != "text"):
				t.Errorf("%s %s: %q, %v", how, name, b, err)
			case want != "" && (!errors.As(err, &kind) || !strings.Contains(err.Error(), "got a "+want+", want a regular file")):
				t.Errorf("%s %s: %v, want a %s refused", how, name, err, want)
			}
		}
	}
	f, err := Given(at("pipe"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(f); err != nil || len(b) > 0 {
		t.Errorf("a pipe without a writer: %q %v", b, err)
	}
	f.Close()
	if _, err := Read(at("file"), 3); err == nil || !strings.Contains(err.Error(), "more than 3 bytes") {
		t.Errorf("limit: %v", err)
	}
	if f, err := At(at("file"), os.O_RDWR|os.O_TRUNC); err != nil {
		t.Error(err)
	} else if st, err := f.Stat(); err != nil || st.Size() != 4 {
		t.Errorf("At truncated: %v %v", st, err)
	} else {
		f.Close()
	}
}

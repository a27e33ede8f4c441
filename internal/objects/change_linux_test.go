package objects

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemo(t *testing.T) {
	s, _ := newStore(t)
	name := filepath.Join(t.TempDir(), "f")
	f := write(t, name, []byte("version 1"))
	put := func(live bool) Sum {
		t.Helper()
		got, err := s.Put(int(f.Fd()), live)
		if err != nil {
			t.Fatal(err)
		}
		return got.SHA256
	}
	put(false)
	if len(s.memo) != 0 {
		t.Error("a file changed a moment ago went into the memo: its next change may leave the same times")
	}
	age()
	first := put(false)
	if len(s.memo) != 1 {
		t.Fatal("an old file did not go into the memo")
	}
	// Same size, and the time of modification forged back: ctime gives it away.
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("version 2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	if put(false) == first {
		t.Error("changed content with a forged mtime was taken from the memo")
	}
	// A live file is read each time, also when the memo has its identity.
	age()
	second := put(false)
	for id := range s.memo {
		s.memo[id] = seen{sum: Sum{1}}
	}
	if put(false) != (Sum{1}) {
		t.Error("positive control: the memo is not used at all")
	}
	if put(true) != second {
		t.Error("a live file was taken from the memo")
	}
}

// A mapped write changes no time stamp when it happens, which is why callers
// say live. This shows that it is needed.
func TestMappedWriteNeedsLive(t *testing.T) {
	s, _ := newStore(t)
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Write(make([]byte, 4096))
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	m[0] = 1 // the page is writable from here on
	age()
	if _, err := s.Put(int(f.Fd()), false); err != nil {
		t.Fatal(err)
	}
	m[0] = 2
	want := sha256.Sum256(append([]byte{2}, make([]byte, 4095)...))
	got, err := s.Put(int(f.Fd()), true)
	if err != nil || got.SHA256 != want {
		t.Errorf("live: got %x, %v, want the mapped content", got.SHA256, err)
	}
}

func TestUnstable(t *testing.T) {
	s, dir := newStore(t)
	name := filepath.Join(t.TempDir(), "f")
	f := write(t, name, random(32*chunk))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		w, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer w.Close()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				w.WriteAt([]byte{byte(i)}, int64(i*4099%(32*chunk)))
			}
		}
	})
	seen := false
	for range 20 {
		got, err := s.Put(int(f.Fd()), false)
		if err != nil {
			t.Fatal(err)
		}
		seen = seen || got.Unstable
	}
	close(stop)
	wg.Wait()
	if !seen {
		t.Error("a file that is written all the time was never unstable")
	}
	files(t, dir) // every object, mixtures too, has the digest of its name
}

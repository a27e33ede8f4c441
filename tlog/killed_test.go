//go:build unix

package tlog_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/tlog"
)

// TestMain is also the process that TestKilled kills: it adds entries and prints
// each that was acknowledged.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TLOG_TEST_ADD"); dir != "" {
		if err := addForever(dir, os.Getenv("TLOG_TEST_KEY")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func addForever(dir, key string) error {
	s, err := keys.Load(key)
	if err != nil {
		return err
	}
	l, err := tlog.Open(context.Background(), dir, s)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				e := fmt.Sprintf("entry %d of adder %d", i, w)
				n, err := l.Add(context.Background(), []byte(e))
				if err == nil {
					_, _, err = tlog.Prove(context.Background(), l, n)
				}
				if err != nil {
					failed <- err
					return
				}
				fmt.Printf("%d %s\n", n, e)
			}
		}()
	}
	return <-failed
}

// What was proved before a kill is proved after it.
func TestKilled(t *testing.T) {
	dir, key, s := newLog(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TLOG_TEST_ADD="+dir, "TLOG_TEST_KEY="+key)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := map[uint64]string{}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var n uint64
		i, e, _ := strings.Cut(lines.Text(), " ")
		if _, err := fmt.Sscan(i, &n); err != nil {
			t.Fatal(err)
		}
		acknowledged[n] = e
		if len(acknowledged) == 40 {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if len(acknowledged) < 40 {
		t.Fatalf("got %d entries, want at least 40", len(acknowledged))
	}
	l := openLog(t, dir, s)
	for n, e := range acknowledged {
		if _, _, err := tlog.Prove(t.Context(), l, n); err != nil {
			t.Errorf("entry %d: %v", n, err)
		}
		if err := l.Entries(t.Context(), n, func(i uint64, got []byte) error {
			if i == n && string(got) != e {
				t.Errorf("entry %d: got %q, want %q", n, got, e)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tlog.Check(t.Context(), dir, s.Public()); err != nil {
		t.Error(err)
	}
	tesseraCheck(t, dir, s)
}

//go:build unix

package trillian_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	pb "github.com/google/trillian"
	"github.com/google/trillian/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian/trilliantest"
)

// The database is put back to what it was before entries that we signed: nothing
// more is signed, whether the tree stays short or grows beyond.
func rolledBack(t *testing.T, s *trilliantest.Servers) {
	l, dir, key := newLog(t, s.Address)
	add := func(l *trillian.Log, from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := l.Add(t.Context(), fmt.Appendf(nil, "entry %d", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	restart := func(change func()) {
		t.Helper()
		s.StopDatabase(t)
		change()
		s.StartDatabase(t)
	}
	add(l, 0, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// Trillian is not started again; it may need a moment to find the database.
	open := func() (*trillian.Log, error) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			l, err := trillian.Open(t.Context(), dir, key)
			if err == nil || errors.Is(err, tlog.ErrRollback) || time.Now().After(end) {
				return l, err
			}
		}
	}
	restart(func() { s.SaveDatabase(t, "3") })
	l, err := open()
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	add(l, 3, 6)
	before := must(l.Checkpoint(t.Context()))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	restart(func() {
		s.SaveDatabase(t, "6")
		s.RestoreDatabase(t, "3")
	})
	if _, err := open(); !errors.Is(err, tlog.ErrRollback) {
		t.Errorf("a shorter tree: got %v, want ErrRollback", err)
	}
	// It grows beyond what was signed, with other entries.
	grow(t, dir, s.Address, 10)
	if _, err := open(); !errors.Is(err, tlog.ErrRollback) {
		t.Errorf("a tree of other entries: got %v, want ErrRollback", err)
	}
	restart(func() { s.RestoreDatabase(t, "6") })
	l, err = open()
	if err != nil {
		t.Fatalf("control: the right database: %v", err)
	}
	defer l.Close()
	if after := must(l.Checkpoint(t.Context())); !bytes.Equal(before, after) {
		t.Errorf("a rollback changed what is signed: got %s, want %s", after, before)
	}
	add(l, 6, 8)
}

// grow adds entries to a log's tree behind its back.
func grow(t *testing.T, dir, address string, size int64) {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(dir, "trillian"))
	if err != nil {
		t.Fatal(err)
	}
	var tree int64
	if _, err := fmt.Sscanf(string(config), "cleanrun trillian log v1\nserver "+address+"\ntree %d\n", &tree); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rpc := pb.NewTrillianLogClient(conn)
	for i := range size {
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			_, err := rpc.QueueLeaf(t.Context(), &pb.QueueLeafRequest{LogId: tree, Leaf: &pb.LogLeaf{LeafValue: fmt.Appendf(nil, "other %d", i)}})
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var root types.LogRootV1
		r, err := rpc.GetLatestSignedLogRoot(t.Context(), &pb.GetLatestSignedLogRootRequest{LogId: tree})
		if err == nil {
			err = root.UnmarshalBinary(r.GetSignedLogRoot().GetLogRoot())
		}
		if err == nil && int64(root.TreeSize) >= size {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the tree has %d entries, want %d: %v", root.TreeSize, size, err)
		}
	}
}

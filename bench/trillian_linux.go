package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/trillian"
	"github.com/google/trillian/client"
	"github.com/google/trillian/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	ontrillian "github.com/cleanrun-dev/cleanrun/tlog/trillian"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian/trilliantest"
)

func init() {
	rates = append(rates, rate{"log on Trillian on PostgreSQL, served to 256 clients", "", trillianRate})
}

// trillianEntries are fewer: Trillian takes some hundred a second.
const trillianEntries = 1024

// trillianRate compares a server over Trillian with Trillian alone, which has to have
// its leaves in a root. The real servers are started as the tests start them.
func trillianRate(tmp string, repeat int) (m Measure, err error) {
	var once sync.Once
	var alone, served []float64
	testing.Init()
	result := testing.Benchmark(func(b *testing.B) {
		once.Do(func() {
			s := trilliantest.Start(b)
			for i := range repeat {
				var took time.Duration
				if took, err = trillianAlone(s.Address); err != nil {
					return
				}
				alone = append(alone, trillianEntries/took.Seconds())
				if took, err = trillianServed(filepath.Join(tmp, fmt.Sprint("trillian-", i)), s.Address); err != nil {
					return
				}
				served = append(served, trillianEntries/took.Seconds())
			}
		})
	})
	if err != nil {
		return m, err
	}
	if len(served) < repeat {
		return Measure{Unit: "entries/s", Missing: map[string]string{"both": fmt.Sprintf("Trillian or PostgreSQL cannot be started here (%d rounds)", result.N)}}, nil
	}
	return Measure{Unit: "entries/s", Values: map[string]float64{"Trillian alone": median(alone), "served": median(served)}}, nil
}

func trillianAlone(address string) (time.Duration, error) {
	ctx := context.Background()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	rpc := trillian.NewTrillianLogClient(conn)
	tree, err := client.CreateAndInitTree(ctx, &trillian.CreateTreeRequest{Tree: &trillian.Tree{TreeState: trillian.TreeState_ACTIVE, TreeType: trillian.TreeType_LOG,
		MaxRootDuration: durationpb.New(0)}}, trillian.NewTrillianAdminClient(conn), rpc)
	if err != nil {
		return 0, err
	}
	statements, err := servedStatements(0, trillianEntries)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := addAtOnce(servedClients, statements, func(b []byte) error {
		_, err := rpc.QueueLeaf(ctx, &trillian.QueueLeafRequest{LogId: tree.TreeId, Leaf: &trillian.LogLeaf{LeafValue: b}})
		return err
	}); err != nil {
		return 0, err
	}
	for {
		r, err := rpc.GetLatestSignedLogRoot(ctx, &trillian.GetLatestSignedLogRootRequest{LogId: tree.TreeId})
		if err != nil {
			return 0, err
		}
		var root types.LogRootV1
		if err := root.UnmarshalBinary(r.SignedLogRoot.LogRoot); err != nil {
			return 0, err
		}
		if root.TreeSize >= uint64(len(statements)) {
			return time.Since(began), nil
		}
		if time.Since(began) > 5*time.Minute {
			return 0, errors.New("Trillian does not take its leaves into a root")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func trillianServed(dir, address string) (time.Duration, error) {
	statements, err := servedStatements(0, trillianEntries)
	if err != nil {
		return 0, err
	}
	if err := ontrillian.Init(context.Background(), dir, address, 0, servedLog); err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	s, err := startServing(dir)
	if err != nil {
		return 0, err
	}
	if err := s.add(statements[0]); err != nil { // the SEAL, on which the others rely
		return 0, err
	}
	began := time.Now()
	err = addAtOnce(servedClients, statements[1:], s.add)
	took := time.Since(began)
	_, e := s.end()
	return took, errors.Join(err, e)
}

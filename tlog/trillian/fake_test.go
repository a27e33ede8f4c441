package trillian

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pb "github.com/google/trillian"
	"github.com/google/trillian/types"
	"github.com/transparency-dev/merkle/rfc6962"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// fake is a log server in memory, as far as a log asks one, that can be made to
// lie. Proofs and the real behaviour of Trillian are tested on Trillian.
type fake struct {
	pb.UnimplementedTrillianLogServer
	pb.UnimplementedTrillianAdminServer

	mu      sync.Mutex
	leaves  [][]byte
	hold    bool                   // queued entries are not integrated
	queued  [][]byte               // while hold is set
	lie     func(*types.LogRootV1) // changes the root that is told
	relabel func([]*pb.LogLeaf)    // changes leaves that are told
	fail    func(method string) error
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) failing(method string) error {
	if f.fail == nil {
		return nil
	}
	return f.fail(method)
}

func (f *fake) CreateTree(context.Context, *pb.CreateTreeRequest) (*pb.Tree, error) {
	return &pb.Tree{TreeId: 7, TreeType: pb.TreeType_LOG}, nil
}

func (f *fake) InitLog(context.Context, *pb.InitLogRequest) (*pb.InitLogResponse, error) {
	return &pb.InitLogResponse{Created: f.signed()}, nil
}

func (f *fake) signed() *pb.SignedLogRoot {
	tree := ranges.NewEmptyRange(0)
	for _, e := range f.leaves {
		if err := tree.Append(rfc6962.DefaultHasher.HashLeaf(e), nil); err != nil {
			panic(err)
		}
	}
	h, err := rootOf(tree)
	if err != nil {
		panic(err)
	}
	root := types.LogRootV1{TreeSize: tree.End(), RootHash: h[:], TimestampNanos: 1}
	if f.lie != nil {
		f.lie(&root)
	}
	b, err := root.MarshalBinary()
	if err != nil {
		panic(err)
	}
	return &pb.SignedLogRoot{LogRoot: b}
}

func (f *fake) GetLatestSignedLogRoot(context.Context, *pb.GetLatestSignedLogRootRequest) (*pb.GetLatestSignedLogRootResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failing("root"); err != nil {
		return nil, err
	}
	return &pb.GetLatestSignedLogRootResponse{SignedLogRoot: f.signed()}, nil
}

func (f *fake) QueueLeaf(_ context.Context, r *pb.QueueLeafRequest) (*pb.QueueLeafResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failing("queue"); err != nil {
		return nil, err
	}
	q := &pb.QueuedLogLeaf{Leaf: r.Leaf}
	for _, e := range append(f.leaves[:len(f.leaves):len(f.leaves)], f.queued...) {
		if string(e) == string(r.Leaf.LeafValue) {
			q.Status = status.New(codes.AlreadyExists, "there").Proto()
			return &pb.QueueLeafResponse{QueuedLeaf: q}, nil
		}
	}
	if f.hold {
		f.queued = append(f.queued, r.Leaf.LeafValue)
	} else {
		f.leaves = append(f.leaves, r.Leaf.LeafValue)
	}
	return &pb.QueueLeafResponse{QueuedLeaf: q}, nil
}

func (f *fake) GetLeavesByRange(_ context.Context, r *pb.GetLeavesByRangeRequest) (*pb.GetLeavesByRangeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failing("leaves"); err != nil {
		return nil, err
	}
	var out []*pb.LogLeaf
	for i := r.StartIndex; i < min(r.StartIndex+r.Count, int64(len(f.leaves))) && len(out) < 3; i++ { // fewer than asked for
		out = append(out, &pb.LogLeaf{LeafIndex: i, LeafValue: f.leaves[i]})
	}
	if f.relabel != nil {
		f.relabel(out)
	}
	return &pb.GetLeavesByRangeResponse{Leaves: out}, nil
}

func (f *fake) GetInclusionProofByHash(_ context.Context, r *pb.GetInclusionProofByHashRequest) (*pb.GetInclusionProofByHashResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, e := range f.leaves {
		if string(rfc6962.DefaultHasher.HashLeaf(e)) == string(r.LeafHash) && int64(i) < r.TreeSize {
			return &pb.GetInclusionProofByHashResponse{Proof: []*pb.Proof{{LeafIndex: int64(i)}}}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no leaf")
}

func (f *fake) GetInclusionProof(context.Context, *pb.GetInclusionProofRequest) (*pb.GetInclusionProofResponse, error) {
	return &pb.GetInclusionProofResponse{}, nil // as of a server that is behind
}

// start serves f on loopback.
func (f *fake) start(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterTrillianLogServer(s, f)
	pb.RegisterTrillianAdminServer(s, f)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func newKey(t testing.TB) receipt.Signer {
	t.Helper()
	name := filepath.Join(t.TempDir(), "log.key")
	if _, err := keys.Generate(name, "log.example/2026", receipt.Ed25519); err != nil {
		t.Fatal(err)
	}
	s, err := keys.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newFake makes a log on a fake and opens it.
func newFake(t *testing.T) (*fake, *Log, string, receipt.Signer) {
	t.Helper()
	f, dir, s := &fake{}, filepath.Join(t.TempDir(), "log"), newKey(t)
	if err := Init(t.Context(), dir, f.start(t), 0, s); err != nil {
		t.Fatal(err)
	}
	l, err := Open(t.Context(), dir, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return f, l, dir, s
}

func add(t *testing.T, l *Log, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if n, err := l.Add(t.Context(), fmt.Appendf(nil, "entry %d", i)); err != nil || n != uint64(i) {
			t.Fatalf("entry %d: got %d, %v", i, n, err)
		}
	}
}

// within bounds a call that a fault must not keep waiting.
func within(t *testing.T) context.Context {
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(done)
	return ctx
}

var errFake = errors.New("fake")

package trillian

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/google/trillian"
	"github.com/google/trillian/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/cleanrun-dev/cleanrun/tlog"
)

func dial(server string) (*grpc.ClientConn, error) {
	host, secure := strings.CutPrefix(server, "tls:")
	creds := insecure.NewCredentials()
	if secure {
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	return grpc.NewClient(host, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
}

// queue hands an entry to Trillian, and finds the index of one that it has already.
func (l *Log) queue(ctx context.Context, entry []byte, hash [32]byte) (index uint64, ok bool, err error) {
	within, done := context.WithTimeout(ctx, rpcWithin)
	defer done()
	// Trillian knows leaves by their identity: that of the bytes, so that an entry
	// whose adding is tried again is in the log once.
	r, err := l.rpc.QueueLeaf(within, &trillian.QueueLeafRequest{LogId: l.tree, Leaf: &trillian.LogLeaf{LeafValue: entry, MerkleLeafHash: hash[:], LeafIdentityHash: hash[:]}})
	if ctx.Err() != nil {
		return 0, false, ctx.Err()
	}
	if err != nil {
		return 0, false, full(err)
	}
	switch code := codes.Code(r.GetQueuedLeaf().GetStatus().GetCode()); code {
	case codes.OK:
		return 0, false, nil
	case codes.AlreadyExists:
		// It may be queued only: then who follows the tree finds it.
		return l.find(ctx, hash)
	default:
		return 0, false, full(status.Error(code, r.GetQueuedLeaf().GetStatus().GetMessage()))
	}
}

// find looks for a leaf in the tree that was signed.
func (l *Log) find(ctx context.Context, hash [32]byte) (index uint64, ok bool, err error) {
	ctx, done := context.WithTimeout(ctx, rpcWithin)
	defer done()
	size := l.last().tree.End()
	if size == 0 {
		return 0, false, nil
	}
	r, err := l.rpc.GetInclusionProofByHash(ctx, &trillian.GetInclusionProofByHashRequest{LogId: l.tree, LeafHash: hash[:], TreeSize: int64(size), OrderBySequence: true})
	if status.Code(err) == codes.NotFound {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	for _, p := range r.GetProof() {
		if i := p.GetLeafIndex(); i >= 0 && uint64(i) < size {
			return uint64(i), true, nil
		}
	}
	return 0, false, nil
}

// full makes an error of a full disk of the database recognisable.
func full(err error) error {
	if strings.Contains(strings.ToLower(err.Error()), "no space left on device") {
		return fmt.Errorf("%w: %w", tlog.ErrFull, err)
	}
	return err
}

// leaves calls f with leaf values in order.
func (l *Log) leaves(ctx context.Context, first, end uint64, f func(uint64, []byte) error) error {
	for next := first; next < end; {
		got, err := l.some(ctx, next, min(end-next, perRequest))
		if err != nil {
			return err
		}
		for _, leaf := range got {
			if leaf.GetLeafIndex() != int64(next) {
				return fmt.Errorf("got leaf %d from Trillian, want leaf %d", leaf.GetLeafIndex(), next)
			}
			if err := f(next, leaf.GetLeafValue()); err != nil {
				return err
			}
			next++
		}
	}
	return nil
}

func (l *Log) some(ctx context.Context, first, count uint64) ([]*trillian.LogLeaf, error) {
	ctx, done := context.WithTimeout(ctx, rpcWithin)
	defer done()
	r, err := l.rpc.GetLeavesByRange(ctx, &trillian.GetLeavesByRangeRequest{LogId: l.tree, StartIndex: int64(first), Count: int64(count)})
	if err != nil {
		return nil, err
	}
	if n := len(r.GetLeaves()); n == 0 || uint64(n) > count {
		return nil, fmt.Errorf("got %d leaves from Trillian, want 1 to %d from leaf %d on", n, count, first)
	}
	return r.GetLeaves(), nil
}

// root is Trillian's newest root, which nobody signed.
func (l *Log) root(ctx context.Context) (root types.LogRootV1, err error) {
	ctx, done := context.WithTimeout(ctx, rpcWithin)
	defer done()
	r, err := l.rpc.GetLatestSignedLogRoot(ctx, &trillian.GetLatestSignedLogRootRequest{LogId: l.tree})
	if err != nil {
		return root, err
	}
	if err := root.UnmarshalBinary(r.GetSignedLogRoot().GetLogRoot()); err != nil {
		return root, fmt.Errorf("Trillian's root: %w", err)
	}
	if len(root.RootHash) != 32 {
		return root, fmt.Errorf("Trillian's root: got a hash of %d bytes, want 32", len(root.RootHash))
	}
	return root, nil
}

func path(p *trillian.Proof) ([][32]byte, error) {
	if p == nil {
		return nil, errors.New("Trillian gave no proof, want one: the server may be behind the others")
	}
	out := make([][32]byte, len(p.Hashes))
	for i, h := range p.Hashes {
		if len(h) != 32 {
			return nil, fmt.Errorf("hash %d of a proof: got %d bytes, want 32", i, len(h))
		}
		out[i] = [32]byte(h)
	}
	return out, nil
}

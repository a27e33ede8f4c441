package trillian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/trillian"
	"github.com/google/trillian/client"
	"github.com/transparency-dev/merkle/rfc6962"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

const (
	rpcWithin     = 10 * time.Second // one answer of Trillian
	publishWithin = 30 * time.Second // from queued to signed
	findEvery     = time.Second
	perRequest    = 256      // leaves in one request: 16 MiB of the largest
	maxMessage    = 32 << 20 // of gRPC
)

// Log is a log on Trillian. Its methods may be called from many goroutines.
type Log struct {
	folder folder
	tree   int64
	lock   io.Closer
	conn   *grpc.ClientConn
	rpc    trillian.TrillianLogClient

	step sync.Mutex // held while the log follows Trillian's tree

	mu      sync.Mutex
	newest  *signed
	waiting map[[32]byte][]chan outcome // by leaf hash
	failed  error                       // of the last step
	closed  bool
	adding  sync.WaitGroup

	wake    chan struct{}
	stop    context.CancelFunc
	stopped chan struct{}
}

// folder is the state and who signs it.
type folder struct {
	dir  string
	key  receipt.Signer
	also []*proof.Cosigner
	now  func() time.Time
}

type outcome struct {
	index uint64
	err   error
}

var _ tlog.Log = (*Log)(nil)

// Init makes a log whose name and signing key are those of s (Ed25519): a tree on
// the server (HOST:PORT, or tls:HOST:PORT), or the empty tree with that id if it
// is not 0, and the folder dir, which must be new or empty. It signs the
// checkpoint of size 0. also are further keys of the log, as of tlog.Init.
func Init(ctx context.Context, dir, server string, tree int64, s receipt.Signer, also ...*proof.Cosigner) error {
	if err := errors.Join(tlog.CheckKeys(s, also), checkServer(server)); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if got, err := os.ReadDir(dir); err != nil {
		return err
	} else if len(got) > 0 {
		return fmt.Errorf("%s: %w: it has %s", dir, tlog.ErrExists, got[0].Name())
	}
	conn, err := dial(server)
	if err != nil {
		return err
	}
	defer conn.Close()
	if tree == 0 {
		ctx, done := context.WithTimeout(ctx, rpcWithin)
		defer done()
		made, err := client.CreateAndInitTree(ctx, &trillian.CreateTreeRequest{Tree: &trillian.Tree{
			TreeState: trillian.TreeState_ACTIVE, TreeType: trillian.TreeType_LOG,
			DisplayName: clip(s.Public().Name(), 20), Description: clip("cleanrun "+s.Public().Name(), 200),
			MaxRootDuration: durationpb.New(0),
		}}, trillian.NewTrillianAdminClient(conn), trillian.NewTrillianLogClient(conn))
		if err != nil {
			return fmt.Errorf("making a tree on %s: %w", server, err)
		}
		tree = made.TreeId
	}
	l := &Log{tree: tree, rpc: trillian.NewTrillianLogClient(conn)}
	root, err := l.root(ctx)
	if err != nil {
		return fmt.Errorf("tree %d on %s: %w", tree, server, err)
	}
	if root.TreeSize != 0 {
		return fmt.Errorf("tree %d on %s: got %d entries, want an empty tree: what was signed of it before is not known here", tree, server, root.TreeSize)
	}
	f := folder{dir, s, also, time.Now}
	if _, err := f.sign(ranges.NewEmptyRange(0)); err != nil {
		return err
	}
	// The last file makes the folder a log.
	return durable.CreateNew(filepath.Join(dir, configName), config{server, tree}.format(), 0o600)
}

// clip shortens text to what Trillian's columns hold.
func clip(s string, n int) string { return s[:min(len(s), n)] }

// Open opens a log that Init made. The folder's last checkpoint must be signed by
// s, and Trillian's tree must follow from it: tlog.ErrRollback.
// One process has a log open at a time: tlog.ErrInUse.
func Open(ctx context.Context, dir string, s receipt.Signer, also ...*proof.Cosigner) (*Log, error) {
	if err := tlog.CheckKeys(s, also); err != nil {
		return nil, err
	}
	l := &Log{folder: folder{dir, s, also, time.Now}, waiting: map[[32]byte][]chan outcome{}, wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	c, err := l.folder.config()
	if err != nil {
		return nil, err
	}
	if l.lock, err = tlog.LockFolder(dir); err != nil {
		return nil, err
	}
	if err := l.open(ctx, c); err != nil {
		return nil, errors.Join(err, l.lock.Close())
	}
	return l, nil
}

func (l *Log) open(ctx context.Context, c config) (err error) {
	if l.newest, err = l.folder.read(); err != nil {
		return err
	}
	if l.conn, err = dial(c.server); err != nil {
		return err
	}
	l.tree, l.rpc = c.tree, trillian.NewTrillianLogClient(l.conn)
	if err := l.advance(ctx); err != nil {
		return errors.Join(fmt.Errorf("tree %d on %s: %w", c.tree, c.server, err), l.conn.Close())
	}
	running, stop := context.WithCancel(context.Background())
	l.stop = stop
	go l.follow(running)
	return nil
}

// Key implements tlog.Log.
func (l *Log) Key() receipt.PublicKey { return l.folder.key.Public() }

// Add implements tlog.Log. The index is that of a leaf that a signed checkpoint
// holds. Equal entries have one index.
func (l *Log) Add(ctx context.Context, entry []byte) (uint64, error) {
	if len(entry) == 0 || len(entry) > tlog.MaxEntry {
		return 0, fmt.Errorf("%w: got %d bytes, want 1 to %d", tlog.ErrEntrySize, len(entry), tlog.MaxEntry)
	}
	hash := [32]byte(rfc6962.DefaultHasher.HashLeaf(entry))
	got, err := l.expect(hash)
	if err != nil {
		return 0, err
	}
	defer l.forget(hash, got)
	if index, ok, err := l.queue(ctx, entry, hash); ok || err != nil {
		return index, err
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	late, again := time.NewTimer(publishWithin), time.NewTicker(findEvery)
	defer late.Stop()
	defer again.Stop()
	for {
		select {
		case o := <-got:
			return o.index, o.err
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-late.C:
			return 0, l.late()
		case <-again.C:
			// A leaf that was added before can be signed while we began to wait.
			if index, ok, err := l.find(ctx, hash); err == nil && ok {
				return index, nil
			}
		}
	}
}

// late says why an entry that Trillian took is in no checkpoint.
func (l *Log) late() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return fmt.Errorf("%w within %v: %w", tlog.ErrUnpublished, publishWithin, l.failed)
	}
	return fmt.Errorf("%w within %v: Trillian's signer may not be running", tlog.ErrUnpublished, publishWithin)
}

// expect asks to be told of a leaf.
func (l *Log) expect(hash [32]byte) (chan outcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("%s: %w", l.folder.dir, tlog.ErrClosed)
	}
	if errors.Is(l.failed, tlog.ErrRollback) {
		return nil, l.failed
	}
	l.adding.Add(1)
	c := make(chan outcome, 1)
	l.waiting[hash] = append(l.waiting[hash], c)
	return c, nil
}

func (l *Log) forget(hash [32]byte, c chan outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := l.waiting[hash][:0]
	for _, w := range l.waiting[hash] {
		if w != c {
			rest = append(rest, w)
		}
	}
	if l.waiting[hash] = rest; len(rest) == 0 {
		delete(l.waiting, hash)
	}
	l.adding.Done()
}

func (l *Log) last() *signed {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// Wait implements tlog.Log.
func (l *Log) Wait(ctx context.Context, index uint64) ([]byte, error) {
	s, err := l.reach(ctx, min(index, math.MaxUint64-1)+1)
	if errors.Is(err, tlog.ErrNoSize) {
		return nil, fmt.Errorf("%w: got index %d, want less than %d", tlog.ErrNoEntry, index, s.tree.End())
	}
	if err != nil {
		return nil, err
	}
	return s.bytes, nil
}

// reach makes sure that a tree of a size or a larger one is signed.
func (l *Log) reach(ctx context.Context, size uint64) (*signed, error) {
	if s := l.last(); size <= s.tree.End() {
		return s, nil
	}
	if err := l.advance(ctx); err != nil {
		return nil, err
	}
	s := l.last()
	if size > s.tree.End() {
		return s, fmt.Errorf("%w: got size %d, want at most %d", tlog.ErrNoSize, size, s.tree.End())
	}
	return s, nil
}

// Inclusion implements tlog.Log.
func (l *Log) Inclusion(ctx context.Context, index, size uint64) ([][32]byte, error) {
	if _, err := l.reach(ctx, size); err != nil {
		return nil, err
	}
	if index >= size {
		return nil, fmt.Errorf("%w: got index %d, want less than %d", tlog.ErrNoEntry, index, size)
	}
	ctx, done := context.WithTimeout(ctx, rpcWithin)
	defer done()
	r, err := l.rpc.GetInclusionProof(ctx, &trillian.GetInclusionProofRequest{LogId: l.tree, LeafIndex: int64(index), TreeSize: int64(size)})
	if err != nil {
		return nil, err
	}
	return path(r.GetProof())
}

// Consistency implements tlog.Log.
func (l *Log) Consistency(ctx context.Context, older, newer uint64) ([][32]byte, error) {
	if older > newer {
		return nil, fmt.Errorf("%w: got a proof from size %d to %d, want the smaller first", tlog.ErrNoSize, older, newer)
	}
	if _, err := l.reach(ctx, newer); err != nil {
		return nil, err
	}
	if older == 0 || older == newer {
		return nil, nil
	}
	ctx, done := context.WithTimeout(ctx, rpcWithin)
	defer done()
	r, err := l.rpc.GetConsistencyProof(ctx, &trillian.GetConsistencyProofRequest{LogId: l.tree, FirstTreeSize: int64(older), SecondTreeSize: int64(newer)})
	if err != nil {
		return nil, err
	}
	return path(r.GetProof())
}

// Checkpoint implements tlog.Log.
func (l *Log) Checkpoint(context.Context) ([]byte, error) { return l.last().bytes, nil }

// Entries implements tlog.Log.
func (l *Log) Entries(ctx context.Context, first uint64, f func(uint64, []byte) error) error {
	return l.leaves(ctx, first, l.last().tree.End(), f)
}

// Close implements tlog.Log.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	idle := make(chan struct{})
	go func() { l.adding.Wait(); close(idle) }()
	var err error
	select {
	case <-idle: // every Add ends by itself
	case <-time.After(publishWithin + 2*rpcWithin):
		err = fmt.Errorf("%s: entries are still being added", l.folder.dir)
	}
	l.stop()
	<-l.stopped
	return errors.Join(err, l.conn.Close(), l.lock.Close())
}

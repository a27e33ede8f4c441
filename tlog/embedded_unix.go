//go:build unix

package tlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// Embedded is a log in a folder that a web server can publish as it is: the
// layout is that of c2sp.org/tlog-tiles, and Tessera keeps it.
type Embedded struct {
	dir     string
	key     receipt.PublicKey
	files   files
	lock    io.Closer
	stop    context.CancelFunc
	add     tessera.AddFn
	shut    func(context.Context) error
	reader  tessera.LogReader
	awaiter *tessera.PublicationAwaiter
	newest  atomic.Pointer[proof.Verified] // the last checkpoint that was read
	nodes   nodes

	mu     sync.RWMutex // held for reading by each Add
	closed bool
}

var _ Log = (*Embedded)(nil)

// Init makes the log dir, whose name and signing key are those of s (Ed25519),
// and publishes the checkpoint of size 0. dir must be new or empty: ErrExists.
// The log signs its checkpoints also with the keys in also (ML-DSA-44, under the log's name).
func Init(ctx context.Context, dir string, s receipt.Signer, also ...*proof.Cosigner) error {
	if err := CheckKeys(s, also); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return err
	}
	got, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(got) > 0 {
		return fmt.Errorf("%s: %w: it has %s", dir, ErrExists, got[0].Name())
	}
	l, err := open(ctx, dir, s, also)
	if err != nil {
		return err
	}
	_, err = l.await(ctx, nil)
	return errors.Join(err, l.Close())
}

// Open opens a log that Init made, and waits until a checkpoint holds all of its
// entries. The newest checkpoint must be signed by s.
// One process has a log open at a time: ErrInUse.
func Open(ctx context.Context, dir string, s receipt.Signer, also ...*proof.Cosigner) (*Embedded, error) {
	if err := CheckKeys(s, also); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(dir, "checkpoint")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoLog)
	} else if err != nil {
		return nil, err
	}
	l, err := open(ctx, dir, s, also)
	if err != nil {
		return nil, err
	}
	if err := l.caughtUp(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// caughtUp waits until all that is in the tree is published: a process that was
// killed can leave entries that no checkpoint holds, and who reads the log before it
// adds to it must see them.
func (l *Embedded) caughtUp(ctx context.Context) error {
	if _, err := l.await(ctx, nil); err != nil {
		return err
	}
	next, err := l.reader.NextIndex(ctx)
	if err != nil || next == 0 {
		return err
	}
	next--
	_, err = l.await(ctx, &next)
	return err
}

func open(ctx context.Context, dir string, s receipt.Signer, also []*proof.Cosigner) (*Embedded, error) {
	l := &Embedded{dir: dir, key: s.Public()}
	var err error
	if l.files, err = openFiles(dir); err != nil {
		return nil, err
	}
	if l.lock, err = LockFolder(dir); err != nil {
		return nil, errors.Join(err, l.files.Close())
	}
	if err := l.start(ctx, s, also); err != nil {
		return nil, errors.Join(err, l.lock.Close(), l.files.Close())
	}
	return l, nil
}

func (l *Embedded) start(ctx context.Context, s receipt.Signer, also []*proof.Cosigner) error {
	// The checkpoint is looked at before Tessera may replace it: a log has one key.
	if _, err := l.read(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	first, more, err := noteSigners(s, also)
	if err != nil {
		return err
	}
	driver, err := posix.New(ctx, posix.Config{Path: l.dir})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	a, shut, r, err := tessera.NewAppender(running, driver, tessera.NewAppendOptions().
		WithCheckpointSigner(first, more...).
		WithCheckpointInterval(publishEvery).
		WithBatching(batchSize, collectFor))
	if err != nil {
		stop()
		return fmt.Errorf("%s: %w", l.dir, full(err))
	}
	l.stop, l.add, l.shut, l.reader = stop, a.Add, shut, r
	l.awaiter = tessera.NewPublicationAwaiter(running, l.files.ReadCheckpoint, publishEvery/4)
	return nil
}

// noteSigners hands the log's keys to Tessera.
func noteSigners(s receipt.Signer, also []*proof.Cosigner) (note.Signer, []note.Signer, error) {
	v, err := note.NewVerifier(s.Public().String())
	if err != nil {
		return nil, nil, fmt.Errorf("key %s: %w", s.Public().Name(), err)
	}
	more := make([]note.Signer, len(also))
	for i, c := range also {
		more[i] = cosigner{s, c}
	}
	return noteSigner{s, v}, more, nil
}

// Key implements Log.
func (l *Embedded) Key() receipt.PublicKey { return l.key }

// Add implements Log. What was handed to the disk is waited for, however long
// that takes: ctx can only keep it from being handed over.
func (l *Embedded) Add(ctx context.Context, entry []byte) (uint64, error) {
	if err := errors.Join(checkSize(entry), ctx.Err()); err != nil {
		return 0, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return 0, fmt.Errorf("%s: %w", l.dir, ErrClosed)
	}
	i, err := l.add(context.Background(), tessera.NewEntry(entry))()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.dir, full(err))
	}
	return i.Index, nil
}

// full makes an error of a full disk recognisable: Tessera passes on some of them
// as text alone.
func full(err error) error {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, e) || strings.Contains(err.Error(), e.Error()) {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	return err
}

// Wait implements Log.
func (l *Embedded) Wait(ctx context.Context, index uint64) ([]byte, error) {
	v, err := l.await(ctx, &index)
	if err != nil {
		return nil, err
	}
	return v.Note(), nil
}

// await returns a checkpoint that holds the entry, or any if index is nil.
func (l *Embedded) await(ctx context.Context, index *uint64) (*proof.Verified, error) {
	if v := l.newest.Load(); index != nil && v != nil && *index < v.Checkpoint().Size {
		return v, nil
	}
	if index != nil {
		if next, err := l.reader.NextIndex(ctx); err != nil {
			return nil, err
		} else if err := checkIndex(*index, next); err != nil {
			return nil, err
		}
	}
	within, done := context.WithTimeoutCause(ctx, publishWithin, ErrUnpublished)
	defer done()
	for {
		v, err := l.read(ctx)
		switch {
		case err == nil && (index == nil || *index < v.Checkpoint().Size):
			return v, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case index == nil:
			select {
			case <-within.Done():
			case <-time.After(publishEvery / 4):
			}
		default:
			_, _, err = l.awaiter.Await(within, func() (tessera.Index, error) { return tessera.Index{Index: *index}, nil })
		}
		if within.Err() != nil {
			return nil, l.unpublished(context.Cause(within))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// unpublished says why no checkpoint came, as far as Tessera said it.
func (l *Embedded) unpublished(cause error) error {
	if w := warnings.String(); errors.Is(cause, ErrUnpublished) && w != "" {
		return fmt.Errorf("%s: %w", l.dir, full(fmt.Errorf("%w within %v: %s", cause, publishWithin, w)))
	}
	return fmt.Errorf("%s: %w", l.dir, cause)
}

// read returns the published checkpoint, which is this log's.
func (l *Embedded) read(ctx context.Context) (*proof.Verified, error) {
	signed, err := l.files.ReadCheckpoint(ctx)
	if err != nil {
		return nil, err
	}
	old := l.newest.Load()
	if old != nil && string(old.Note()) == string(signed) {
		return old, nil
	}
	v, err := verifyNote(signed, l.key)
	if err != nil {
		return nil, fmt.Errorf("%s: the checkpoint is not signed by %s: %w", l.dir, l.key.Name(), err)
	}
	for old = l.newest.Load(); old == nil || old.Checkpoint().Size < v.Checkpoint().Size; old = l.newest.Load() {
		if l.newest.CompareAndSwap(old, v) {
			break
		}
	}
	return v, nil
}

// published makes sure that there is a checkpoint of a size or a larger one.
func (l *Embedded) published(ctx context.Context, size uint64) error {
	v := l.newest.Load()
	if v == nil || v.Checkpoint().Size < size {
		var err error
		if v, err = l.read(ctx); err != nil {
			return err
		}
	}
	if got := v.Checkpoint().Size; got < size {
		return fmt.Errorf("%w: got size %d, want at most %d", ErrNoSize, size, got)
	}
	return nil
}

// Checkpoint implements Log.
func (l *Embedded) Checkpoint(ctx context.Context) ([]byte, error) {
	v, err := l.await(ctx, nil)
	if err != nil {
		return nil, err
	}
	return v.Note(), nil
}

// Entries implements Log.
func (l *Embedded) Entries(ctx context.Context, first uint64, f func(uint64, []byte) error) error {
	v, err := l.await(ctx, nil)
	if err != nil {
		return err
	}
	size := v.Checkpoint().Size
	for n := first / perBundle; n < (size+perBundle-1)/perBundle; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := l.files.bundle(n, size)
		if err != nil {
			return err
		}
		for i, e := range entries {
			if at := n*perBundle + uint64(i); at >= first {
				if err := f(at, e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Close implements Log.
func (l *Embedded) Close() error {
	l.mu.Lock() // once no Add is under way
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	ctx, done := context.WithTimeoutCause(context.Background(), closeWithin, ErrUnpublished)
	defer done()
	err := l.shut(ctx)
	if err != nil && ctx.Err() != nil {
		err = l.unpublished(context.Cause(ctx))
	}
	l.stop()
	return errors.Join(err, l.lock.Close(), l.files.Close())
}

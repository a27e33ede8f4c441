//go:build unix

package tlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/transparency-dev/formats/log"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

const (
	// publishEvery is the least time between two checkpoints that Tessera takes.
	publishEvery = 100 * time.Millisecond
	// collectFor is how long a batch waits for more entries.
	collectFor = 20 * time.Millisecond
	batchSize  = 256
	// closeWithin bounds how long Close waits for the last checkpoint.
	closeWithin = 30 * time.Second

	lockName   = ".lock"
	folderMode = 0o755 // a log is public
)

// Embedded is a log in a folder that a web server can publish as it is: the
// layout is that of c2sp.org/tlog-tiles, and Tessera keeps it.
type Embedded struct {
	dir     string
	key     note.Verifier
	lock    *os.File
	stop    context.CancelFunc
	add     tessera.AddFn
	close   func(context.Context) error
	reader  tessera.LogReader
	awaiter *tessera.PublicationAwaiter
}

var _ Log = (*Embedded)(nil)

// Init makes the log dir, whose name and signing key are those of s (Ed25519),
// and publishes the checkpoint of size 0. dir must be new or empty: ErrExists.
func Init(ctx context.Context, dir string, s receipt.Signer) error {
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
	l, err := open(ctx, dir, s)
	if err != nil {
		return err
	}
	_, _, err = l.await(ctx, nil)
	return errors.Join(err, l.Close())
}

// Open opens a log that Init made. The newest checkpoint must be signed by s.
// One process has a log open at a time: ErrInUse.
func Open(ctx context.Context, dir string, s receipt.Signer) (*Embedded, error) {
	if _, err := os.Stat(filepath.Join(dir, "checkpoint")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoLog)
	} else if err != nil {
		return nil, err
	}
	l, err := open(ctx, dir, s)
	if err != nil {
		return nil, err
	}
	if _, _, err := l.await(ctx, nil); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func open(ctx context.Context, dir string, s receipt.Signer) (*Embedded, error) {
	signer, err := newNoteSigner(s)
	if err != nil {
		return nil, err
	}
	l := &Embedded{dir: dir, key: signer.verifier}
	if l.lock, err = lock(filepath.Join(dir, lockName)); err != nil {
		return nil, err
	}
	if err := l.start(ctx, signer); err != nil {
		return nil, errors.Join(err, l.lock.Close())
	}
	return l, nil
}

func (l *Embedded) start(ctx context.Context, signer note.Signer) error {
	// The checkpoint is looked at before Tessera may replace it: a log has one key.
	if b, err := os.ReadFile(filepath.Join(l.dir, "checkpoint")); err == nil {
		if _, err := l.openNote(b); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	driver, err := posix.New(ctx, posix.Config{Path: l.dir})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	a, shut, r, err := tessera.NewAppender(running, driver, tessera.NewAppendOptions().
		WithCheckpointSigner(signer).
		WithCheckpointInterval(publishEvery).
		WithBatching(batchSize, collectFor))
	if err != nil {
		stop()
		return fmt.Errorf("%s: %w", l.dir, err)
	}
	l.stop, l.add, l.close, l.reader = stop, a.Add, shut, r
	l.awaiter = tessera.NewPublicationAwaiter(running, r.ReadCheckpoint, publishEvery/4)
	return nil
}

// lock is released by the kernel with the last descriptor, so a killed process
// leaves nothing that must be cleaned up.
func lock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", filepath.Dir(name), ErrInUse)
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

// Add implements Log.
func (l *Embedded) Add(ctx context.Context, entry []byte) (uint64, error) {
	if err := checkSize(entry); err != nil {
		return 0, err
	}
	i, err := l.add(ctx, tessera.NewEntry(entry))()
	if err != nil {
		return 0, err
	}
	return i.Index, nil
}

// Prove implements Log.
func (l *Embedded) Prove(ctx context.Context, index uint64) (Proof, error) {
	next, err := l.reader.NextIndex(ctx)
	if err != nil {
		return Proof{}, err
	}
	if index >= next {
		return Proof{}, fmt.Errorf("%w: got index %d, want less than %d", ErrNoEntry, index, next)
	}
	signed, cp, err := l.await(ctx, &index)
	if err != nil {
		return Proof{}, err
	}
	b, err := client.NewProofBuilder(ctx, cp.Size, l.reader.ReadTile)
	if err != nil {
		return Proof{}, err
	}
	hashes, err := b.InclusionProof(ctx, index)
	if err != nil {
		return Proof{}, err
	}
	var leaf []byte
	if err := l.bundle(ctx, index/perBundle, cp.Size, func(i uint64, entry []byte) error {
		if i == index {
			leaf = rfc6962.DefaultHasher.HashLeaf(entry)
		}
		return nil
	}); err != nil {
		return Proof{}, err
	}
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, cp.Size, leaf, hashes, cp.Hash); err != nil {
		return Proof{}, fmt.Errorf("entry %d does not lead to the root that was signed at size %d, look at the log with Check: %w", index, cp.Size, err)
	}
	return Proof{index, hashes, signed}, nil
}

// await returns a checkpoint that holds the entry, or any if index is nil.
func (l *Embedded) await(ctx context.Context, index *uint64) ([]byte, *log.Checkpoint, error) {
	for {
		signed, err := l.reader.ReadCheckpoint(ctx)
		if err == nil && len(signed) > 0 {
			cp, err := l.openNote(signed)
			if err != nil {
				return nil, nil, err
			}
			if index == nil || *index < cp.Size {
				return signed, cp, nil
			}
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		if index == nil {
			select {
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			case <-time.After(publishEvery / 4):
			}
			continue
		}
		if _, _, err := l.awaiter.Await(ctx, func() (tessera.Index, error) { return tessera.Index{Index: *index}, nil }); err != nil {
			return nil, nil, err
		}
	}
}

// openNote checks the signature of a checkpoint of this log.
func (l *Embedded) openNote(signed []byte) (*log.Checkpoint, error) {
	cp, _, _, err := log.ParseCheckpoint(signed, l.key.Name(), l.key)
	if err != nil {
		return nil, fmt.Errorf("%s: the checkpoint is not signed by %s: %w", l.dir, l.key.Name(), err)
	}
	return cp, nil
}

// Checkpoint implements Log.
func (l *Embedded) Checkpoint(ctx context.Context) ([]byte, error) {
	signed, _, err := l.await(ctx, nil)
	return signed, err
}

// Entries implements Log.
func (l *Embedded) Entries(ctx context.Context, first uint64, f func(uint64, []byte) error) error {
	_, cp, err := l.await(ctx, nil)
	if err != nil {
		return err
	}
	for n := first / perBundle; n*perBundle < cp.Size; n++ {
		if err := l.bundle(ctx, n, cp.Size, func(i uint64, entry []byte) error {
			if i < first {
				return nil
			}
			return f(i, entry)
		}); err != nil {
			return err
		}
	}
	return nil
}

// bundle calls f with the entries of bundle n of a tree of the given size.
func (l *Embedded) bundle(ctx context.Context, n, size uint64, f func(uint64, []byte) error) error {
	count := min(size-n*perBundle, perBundle)
	b, err := l.reader.ReadEntryBundle(ctx, n, uint8(count%perBundle))
	if err != nil {
		return err
	}
	entries, err := splitBundle(b, int(count))
	if err != nil {
		return fmt.Errorf("entries from %d on: %w", n*perBundle, err)
	}
	for i, e := range entries {
		if err := f(n*perBundle+uint64(i), e); err != nil {
			return err
		}
	}
	return nil
}

// Close implements Log.
func (l *Embedded) Close() error {
	ctx, done := context.WithTimeout(context.Background(), closeWithin)
	defer done()
	err := l.close(ctx)
	l.stop()
	return errors.Join(err, l.lock.Close())
}

package trillian

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/tlog"
)

// How often Trillian is asked for its root: while somebody waits for an entry, and else.
const (
	busyEvery = 25 * time.Millisecond
	idleEvery = time.Second
)

// follow keeps up with Trillian's tree until ctx ends. While Trillian does not
// answer it tries again, more and more slowly.
func (l *Log) follow(ctx context.Context) {
	defer close(l.stopped)
	every := busyEvery
	for {
		pause := idleEvery
		if l.busy() {
			pause = every
		}
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-time.After(pause):
		}
		if err := l.advance(ctx); err != nil {
			every = min(every*2, idleEvery)
			select {
			case <-ctx.Done():
				return
			case <-time.After(every):
			}
			continue
		}
		every = busyEvery
	}
}

func (l *Log) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) > 0
}

// advance signs Trillian's newest tree if it follows from the last that was
// signed, and tells who waits. Its error stands until the next step: a server that
// was only behind is no lasting harm, since nothing was signed.
func (l *Log) advance(ctx context.Context) error {
	l.step.Lock()
	defer l.step.Unlock()
	next, found, err := l.next(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil || ctx.Err() == nil {
		l.failed = err
	}
	if err != nil {
		if errors.Is(err, tlog.ErrRollback) {
			for _, waiting := range l.waiting {
				for _, c := range waiting {
					tell(c, outcome{err: err})
				}
			}
		}
		return err
	}
	if next == nil {
		return nil
	}
	l.newest = next
	for hash, index := range found {
		for _, c := range l.waiting[hash] {
			tell(c, outcome{index: index})
		}
	}
	return nil
}

// tell leaves the first outcome.
func tell(c chan outcome, o outcome) {
	select {
	case c <- o:
	default:
	}
}

// next signs the newest tree. It is nil if that is signed already. The root is
// derived from the last signed tree and from the leaves that came after it, so
// what Trillian says about it is only compared.
func (l *Log) next(ctx context.Context) (*signed, map[[32]byte]uint64, error) {
	last := l.last()
	root, err := l.root(ctx)
	if err != nil {
		return nil, nil, err
	}
	cp := last.note.Checkpoint()
	if root.TreeSize < cp.Size || root.TreeSize == cp.Size && [32]byte(root.RootHash) != cp.Root {
		return nil, nil, l.rollback(root.TreeSize, root.RootHash, cp.Root[:], cp.Size)
	}
	if root.TreeSize == cp.Size {
		return nil, nil, nil
	}
	tree, err := ranges.NewRange(0, cp.Size, last.tree.Hashes())
	if err != nil {
		return nil, nil, err
	}
	found := map[[32]byte]uint64{}
	if err := l.leaves(ctx, cp.Size, root.TreeSize, func(i uint64, entry []byte) error {
		h := rfc6962.DefaultHasher.HashLeaf(entry)
		if l.expected([32]byte(h)) {
			if _, ok := found[[32]byte(h)]; !ok {
				found[[32]byte(h)] = i
			}
		}
		return tree.Append(h, nil)
	}); err != nil {
		return nil, nil, err
	}
	derived, err := rootOf(tree)
	if err != nil {
		return nil, nil, err
	}
	if derived != [32]byte(root.RootHash) {
		return nil, nil, l.rollback(root.TreeSize, root.RootHash, derived[:], cp.Size)
	}
	s, err := l.folder.sign(tree)
	if err != nil {
		return nil, nil, full(err)
	}
	return s, found, nil
}

// expected tells whether somebody waits for a leaf now. Who comes later finds it.
func (l *Log) expected(hash [32]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting[hash]) > 0
}

func (l *Log) rollback(size uint64, got, want []byte, signed uint64) error {
	return fmt.Errorf("%w: got root %x at size %d, want %x, which follows from the tree of size %d that was signed last (%s): put back the database as it was, or end this log", tlog.ErrRollback, got, size, want, signed, l.folder.dir)
}

// Package blob is object storage as a source of surface, through gocloud.dev/blob: what
// that package opens, this one asks.
//
// Limits first. A bucket shows the present object of each key. Of older versions, of what was
// deleted, and of who wrote, it knows nothing. Keys that are no clean relative paths are
// not read. An object's time is the store's own in a cloud (ServerTimes); with the file
// driver it is the file's, which its writer chooses.
package blob

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/cleanrun-dev/cleanrun/surface"
)

// A Source is one bucket.
type Source struct {
	Bucket *blob.Bucket
	Name   string // for the description; without credentials
	// ServerTimes says that the store sets an object's time when it is written, and that
	// its writer cannot.
	ServerTimes bool
}

// Describe names the bucket. Labels are an object's metadata.
func (s *Source) Describe() surface.Description {
	return surface.Description{Kind: "blob", Version: s.Name, Applies: []surface.Key{surface.KeyWindow, surface.KeyLabels}}
}

// List lists the keys below the location's folder, and reads those that match.
func (s *Source) List(ctx context.Context, at surface.Location, c *surface.Collector) {
	ok, err := s.Bucket.IsAccessible(ctx)
	if ctx.Err() != nil {
		_ = c.Listed() // which says so
		return
	}
	if err != nil || !ok {
		_ = c.Break(surface.Unavailable)
		return
	}
	if !at.Glob {
		if c.Listed() != nil {
			return
		}
		exists, err := s.Bucket.Exists(ctx, at.Path)
		switch {
		case err != nil:
			c.Gap(surface.ReadFailed, at.Path)
		case exists:
			_ = s.object(ctx, c, at.Path)
		}
		return
	}
	prefix := ""
	if base := at.Base(); base != "." {
		prefix = base + "/"
	}
	for it := s.Bucket.List(&blob.ListOptions{Prefix: prefix}); ; {
		o, err := it.Next(ctx)
		if err == io.EOF {
			return
		}
		if ctx.Err() != nil {
			_ = c.Listed() // which says so
			return
		}
		if err != nil {
			_ = c.Break(surface.Failed)
			return
		}
		if c.Listed() != nil {
			return
		}
		if (surface.Location{Path: o.Key}).Check() != nil {
			c.Gap(surface.UnsafeName, "")
			continue
		}
		if at.Matches(o.Key) && s.object(ctx, c, o.Key) != nil {
			return
		}
	}
}

// object hands one object over. Its attributes are asked before and after it is read.
func (s *Source) object(ctx context.Context, c *surface.Collector, key string) error {
	return c.File(key, func() (*surface.Item, surface.Reason) {
		a, err := s.Bucket.Attributes(ctx, key)
		if err != nil {
			return nil, missing(err)
		}
		r, err := s.Bucket.NewReader(ctx, key, nil)
		if err != nil {
			return nil, missing(err)
		}
		it := &surface.Item{Size: a.Size, Modified: surface.Stamp(a.ModTime), Content: r}
		if s.ServerTimes {
			it.Changed = it.Modified
		}
		for k, v := range a.Metadata {
			it.Labels = append(it.Labels, surface.Label{Name: k, Value: v})
		}
		slices.SortFunc(it.Labels, func(a, b surface.Label) int { return strings.Compare(a.Name, b.Name) })
		it.After = func() surface.Reason {
			b, err := s.Bucket.Attributes(ctx, key)
			if err != nil {
				return missing(err)
			}
			if b.ETag != a.ETag || b.Size != a.Size || !b.ModTime.Equal(a.ModTime) || r.Size() != a.Size {
				return surface.Changed
			}
			return ""
		}
		return it, ""
	})
}

// missing is the reason of an object that was listed and cannot be read.
func missing(err error) surface.Reason {
	if gcerrors.Code(err) == gcerrors.NotFound && !errors.Is(err, context.Canceled) {
		return surface.Replaced
	}
	return surface.ReadFailed
}

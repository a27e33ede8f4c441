// Package oci is tar archives and OCI images as sources of surface.
//
// Limits first. An archive shows what was packed, with times that its packer chose.
// Nothing is unpacked to disk. An image is read from an OCI image layout in a folder,
// not from a registry, and every blob is held to its digest; who made the image is not
// checked. What lies behind a link to a folder is followed for one path, not for a glob.
//
// The layers of an image are laid over each other as the specification says
// (opencontainers/image-spec, layer.md): a whiteout removes what lies below, an opaque one
// all of a folder. In a plain archive the last entry of a name counts, as when it is
// unpacked.
package oci

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/surface"
)

const (
	maxJSON  = 4 << 20 // bytes of an index, manifest or configuration
	maxIndex = 3       // indexes in indexes
	refName  = "org.opencontainers.image.ref.name"
)

// A Source is one archive, or one image. It is made by Tar or Layout.
type Source struct {
	kind    string
	version string
	labels  []surface.Label
	layers  []layer // lowest first
	root    *os.Root
}

// A layer is one archive, which may be packed by gzip or zstd.
type layer struct {
	open   func() (io.ReadCloser, error)
	digest string // SHA-256 of its bytes in hex; "" if it is not known yet
}

// Tar is a tar file, which may be packed by gzip or zstd.
func Tar(path string) *Source {
	return &Source{kind: "tar", layers: []layer{{open: func() (io.ReadCloser, error) { return regular.At(path, os.O_RDONLY) }}}}
}

// Layout is an image of the OCI image layout in a folder. ref is the name or the digest
// of one; "" if there is only one.
func Layout(dir, ref string) (*Source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &Source{kind: "oci", root: root}
	if err := s.resolve(ref); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), root.Close())
	}
	return s, nil
}

// Close closes an image's folder.
func (s *Source) Close() error {
	if s.root == nil {
		return nil
	}
	return s.root.Close()
}

// Describe names the source, by its digest once it was read.
func (s *Source) Describe() surface.Description {
	d := surface.Description{Kind: s.kind, Version: s.version, Applies: []surface.Key{surface.KeyWindow}}
	if s.kind == "oci" {
		d.Applies = append(d.Applies, surface.KeyLabels)
	}
	return d
}

// An image that an index lists.
type image struct {
	name   string
	digest v1.Hash
	about  string // for the list of choices
}

func (s *Source) resolve(ref string) error {
	raw, err := regular.ReadIn(s.root, "index.json", maxJSON)
	if err != nil {
		return fmt.Errorf("index.json: %w", err)
	}
	list, err := s.images(raw, maxIndex)
	if err != nil {
		return err
	}
	var names []string
	var fit []image
	for _, m := range list {
		names = append(names, m.about)
		if ref == "" || ref == m.name || ref == m.digest.String() {
			fit = append(fit, m)
		}
	}
	if len(fit) != 1 {
		return fmt.Errorf("got %d images for %q, want one of: %s", len(fit), ref, strings.Join(names, ", "))
	}
	return s.image(fit[0].digest)
}

func (s *Source) images(raw []byte, depth int) ([]image, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	var out []image
	for _, m := range index.Manifests {
		switch {
		case m.MediaType.IsImage():
			about := m.Digest.String()
			if m.Platform != nil {
				about += " (" + m.Platform.String() + ")"
			}
			if n := m.Annotations[refName]; n != "" {
				about += " " + n
			}
			out = append(out, image{m.Annotations[refName], m.Digest, about})
		case m.MediaType.IsIndex() && depth > 0:
			sub, err := s.blob(m.Digest)
			if err != nil {
				return nil, err
			}
			list, err := s.images(sub, depth-1)
			if err != nil {
				return nil, err
			}
			for _, i := range list {
				if i.name == "" {
					i.name = m.Annotations[refName]
				}
				out = append(out, i)
			}
		}
	}
	return out, nil
}

// image reads a manifest and its configuration.
func (s *Source) image(digest v1.Hash) error {
	raw, err := s.blob(digest)
	if err != nil {
		return err
	}
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("manifest %s: %w", digest, err)
	}
	config, err := s.blob(m.Config.Digest)
	if err != nil {
		return err
	}
	c, err := v1.ParseConfigFile(bytes.NewReader(config))
	if err != nil {
		return fmt.Errorf("configuration %s: %w", m.Config.Digest, err)
	}
	for k, v := range c.Config.Labels {
		s.labels = append(s.labels, surface.Label{Name: k, Value: v})
	}
	slices.SortFunc(s.labels, func(a, b surface.Label) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range m.Layers {
		name, err := blobName(l.Digest)
		if err != nil {
			return err
		}
		s.layers = append(s.layers, layer{func() (io.ReadCloser, error) { return regular.In(s.root, name) }, l.Digest.Hex})
	}
	s.version = digest.String()
	return nil
}

func blobName(d v1.Hash) (string, error) {
	if b, err := hex.DecodeString(d.Hex); d.Algorithm != "sha256" || err != nil || len(b) != sha256.Size || d.Hex != strings.ToLower(d.Hex) {
		return "", fmt.Errorf("got digest %q, want one of SHA-256", d.String())
	}
	return "blobs/sha256/" + d.Hex, nil
}

// blob is a small blob that has its digest.
func (s *Source) blob(d v1.Hash) ([]byte, error) {
	name, err := blobName(d)
	if err != nil {
		return nil, err
	}
	b, err := regular.ReadIn(s.root, name, maxJSON)
	if err != nil {
		return nil, err
	}
	if got := sha256.Sum256(b); hex.EncodeToString(got[:]) != d.Hex {
		return nil, fmt.Errorf("%s: its bytes have SHA-256 %x: the layout was changed", name, got)
	}
	return b, nil
}

// List lists the archive or image.
func (s *Source) List(_ context.Context, at surface.Location, c *surface.Collector) {
	t := &tree{at: at, c: c, top: newFolder(), layered: s.kind == "oci"}
	for i := range s.layers {
		if !s.pass(i, c, true, func(m *member) error { return t.add(i, m) }) {
			return
		}
	}
	if s.version == "" {
		s.version = "sha256:" + s.layers[0].digest
	}
	list := t.find()
	for i := range s.layers {
		ok := !slices.ContainsFunc(list, func(w wanted) bool { return w.layer == i }) ||
			s.pass(i, c, false, func(m *member) error { return s.give(i, m, list, c) })
		if !ok {
			return
		}
	}
}

// give hands a member over under every name that asked for it.
func (s *Source) give(layer int, m *member, all []wanted, c *surface.Collector) error {
	names := func(yield func(string) bool) {
		for _, w := range all {
			if w.layer == layer && w.index == m.index && !yield(w.location) {
				return
			}
		}
	}
	list := slices.Collect(names)
	var kept []byte
	if len(list) > 1 { // one reading, and a byte more than the budget says that it is not all
		var err error
		if kept, err = io.ReadAll(io.LimitReader(m, c.ReadLimit()+1)); err != nil {
			return err
		}
	}
	for _, location := range list {
		err := c.File(location, func() (*surface.Item, surface.Reason) {
			it := &surface.Item{Size: m.size, Modified: m.modified, Labels: s.labels, Content: io.NopCloser(m)}
			if kept != nil {
				it.Content, it.Links = io.NopCloser(bytes.NewReader(kept)), uint32(len(list))
			}
			return it, ""
		})
		if err != nil {
			return err
		}
	}
	return nil
}

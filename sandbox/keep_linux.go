package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/redact"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// keeping is how the broker keeps what it records. It goes from stage to stage in
// memory.
type keeping struct {
	Remove redact.Config
	Max    uint64
	Secret journal.Secret
	Key    string // of an encrypted run folder, else empty
}

// sealedFileName is the sealed set's in a run folder.
const sealedFileName = "task.sealed"

// keep checks what is to be removed, and draws the keys.
func (s *stage) keep(c *Config) error {
	s.Keep = keeping{Max: c.StoreMax, Secret: journal.DrawSecret()}
	if c.Secret != nil {
		s.Keep.Secret = *c.Secret
	}
	s.Keep.Remove = redact.Config{Shapes: c.RemoveKeys, Patterns: c.RemovePatterns}
	for _, secret := range c.Secrets {
		s.Keep.Remove.Values = append(s.Keep.Remove.Values, secret.Value)
	}
	r, err := redact.New(s.Keep.Remove)
	if err != nil {
		return refused("Secrets", fmt.Sprintf("values of %d to %d bytes, at most %d of them, and bounded patterns", redact.MinValue, redact.MaxValue, redact.MaxValues), err.Error(),
			"a shorter value would be found everywhere; a longer secret belongs into a file that the task grants")
	}
	// What every verifier reads cannot be changed, and it is told that the runner
	// chose what nobody scans.
	st := &s.Start
	for id, given := range map[string]bool{"secret-values": len(c.Secrets) > 0, "secret-patterns": len(c.RemovePatterns) > 0} {
		if given && !slices.Contains(st.Blind, id) {
			st.Blind = slices.Sorted(slices.Values(append(slices.Clone(st.Blind), id)))
		}
	}
	if err := s.fillPlant(c); err != nil {
		return err
	}
	public := []string{c.ControlText, st.Benchmark, st.Task, st.Agent, st.Model}
	if p := st.Phases; p != nil {
		public = slices.Concat(public, p.Setup, p.Grade, p.Guard)
	}
	if r.Finds([]byte(strings.Join(public, "\x00"))) {
		return refused("Secrets", "values that the task's names, its control text, -agent, -model, -setup and -grade do not hold", "one of them there",
			"a value of common words would remove honest text: give the run a real key, and pass it to commands by its variable")
	}
	for _, name := range []string{baselineFile, sealedFileName} {
		b, err := os.ReadFile(filepath.Join(s.RunDir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sandbox: %w", err)
		}
		if r.Finds(b) {
			return refused("Secrets", "values that no file name of the workspace and no part of the sealed set holds", "one in "+name,
				"rename the file and seal the task again")
		}
	}
	for _, root := range s.Start.Roots {
		if _, res := r.WithoutShapes().String(root.Path, true); res.Bytes > 0 {
			return refused("Secrets", "values that no path of the run's scope holds", "one in a path of the scope, which the journal shows",
				"rename the folder")
		}
	}
	return nil
}

// keepSecret writes the journal's secret, and the keys of an encrypted folder.
func (s *stage) keepSecret(recipients []string) error {
	write := func(name string, b []byte) error {
		if err := durable.CreateNew(filepath.Join(s.RunDir, name), b, 0o600); err != nil {
			return fmt.Errorf("sandbox: %w", err)
		}
		return nil
	}
	if len(recipients) == 0 {
		return write(journal.SecretFile, s.Keep.Secret[:])
	}
	to, text, err := vault.Recipients(recipients)
	if err != nil {
		return refused("Recipients", "age recipients", err.Error(), "age-keygen makes one")
	}
	keys, file, err := vault.New(to)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	s.Keep.Key = keys.ForStage()
	sealed, err := keys.EncryptBytes(s.Keep.Secret[:])
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	if err := write(vault.RecipientsFile, []byte(text)); err != nil {
		return err
	}
	if err := write(vault.KeyFile, file); err != nil {
		return err
	}
	return write(vault.SecretFile, sealed)
}

// protect sets how the broker's store and details are kept, and returns what it
// removes.
func (r *recording) protect(details *os.File) (*redact.Redactor, vault.Sink, error) {
	remove, err := redact.New(r.Keep.Remove)
	if err != nil {
		return nil, nil, err
	}
	p := objects.Protection{Remove: remove, Max: r.Keep.Max}
	sink := vault.Sink(details)
	if r.Keep.Key != "" {
		if p.Keys, err = vault.Parse(r.Keep.Key); err != nil {
			return nil, nil, err
		}
		if sink, err = p.Keys.Records(details); err != nil {
			return nil, nil, err
		}
	}
	r.store.Protect(p)
	return remove, sink, nil
}

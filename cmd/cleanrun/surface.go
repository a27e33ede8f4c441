package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"gocloud.dev/blob/fileblob"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/surface"
	surfaceblob "github.com/cleanrun-dev/cleanrun/surface/blob"
	"github.com/cleanrun-dev/cleanrun/surface/mcp"
	"github.com/cleanrun-dev/cleanrun/surface/oci"
	"github.com/cleanrun-dev/cleanrun/surface/rundir"
)

// surfaceFlags are what the surface command is given.
type surfaceFlags struct {
	folder, run, tar, oci, image, bucket, mcp, observation string // sources, one of them

	path, glob                                  string
	contains, equals, equalsFile, regex, fromTo string
	ignoreCase                                  bool

	from, to, during, attempt string
	labels                    []string

	root, identity, out                  string
	entries, files, read, total, keeping uint32
}

var surfaceArgs = surfaceFlags{entries: 100_000, files: 1_000, read: 16, total: 8192, keeping: 1024}

var surfaceCommand = &cli.Command{
	Name:  "surface",
	Short: "ask whether that content stands at that location, and whether the run wrote it",
	Long: `Looks at a location in one source, and answers: true if an entry there matches, false only if everything was seen and read, else undetermined,
with the reasons. Exit codes: 0 true, 4 false, 3 undetermined, 1 an observation that is none, 2 all else.

The source is one of: a recorded run (-run), which alone knows who wrote, what was deleted again and what was there before; a folder (-folder); a
tar file (-tar); an image in an OCI layout (-oci, -image); a bucket (-bucket file:///DIR); a file-system server of the Model Context Protocol
(-mcp ROOT -- CMD...), started here; or an observation that was stored before (-observation).

The location is one path (-at) or a glob (-glob), relative to the source's root, with slashes. Without a matcher any content of at least one
byte counts. A true says what it rests on: "location" is that it stood there when it was read, and no more.

  cleanrun surface -run RUNDIR -at out/report.txt -contains 'CHECK-41'

  cleanrun surface -folder build -glob '**/*.key' \
    -regex 'BEGIN [A-Z ]*PRIVATE KEY' -o seen.observation

  cleanrun surface -mcp /srv/data -at notes.txt -- \
    npx -y @modelcontextprotocol/server-filesystem /srv/data`,
	JSON:   true,
	Dashed: true,
	Flags: func(f *cli.Flags) {
		v := &surfaceArgs
		f.String(&v.run, "run", "run `folder` that cleanrun run wrote")
		f.String(&v.identity, "identity", identityUsage+", with -run")
		f.String(&v.root, "root", "absolute `folder` inside the sandbox that locations are relative to, with -run; else the workspace")
		f.String(&v.folder, "folder", "local `folder`")
		f.String(&v.tar, "tar", "tar `file`, plain or packed by gzip or zstd")
		f.String(&v.oci, "oci", "`folder` of an OCI image layout")
		f.String(&v.image, "image", "`name` or digest of the image in it, if there are several")
		f.String(&v.bucket, "bucket", "`URL` of a bucket, file:///DIR")
		f.String(&v.mcp, "mcp", "`folder` as the server names it; the server's command follows --")
		f.String(&v.observation, "observation", "`file` of a stored observation")
		f.String(&v.path, "at", "`path` to look at")
		f.String(&v.glob, "glob", "`pattern` of paths to look at, with ** for any folders")
		f.String(&v.contains, "contains", "`text` that the content holds")
		f.Bool(&v.ignoreCase, "ignore-case", "-contains folds upper and lower case")
		f.String(&v.equals, "equals", "`text` that the content is")
		f.String(&v.equalsFile, "equals-file", "`file` that the content is equal to (UTF-8)")
		f.String(&v.regex, "regex", "RE2 `expression` that the content matches somewhere")
		f.String(&v.from, "from", "only entries of this `time` (RFC 3339) and later")
		f.String(&v.to, "to", "only entries of this `time` and earlier")
		f.String(&v.during, "during", "only entries of the time in which this run `folder` was written")
		f.Strings(&v.labels, "label", "only entries with this label, `NAME=VALUE`")
		f.String(&v.attempt, "attempt", "only entries of this attempt (a run's `id`)")
		f.String(&v.out, "o", "`file` to store the observation in")
		f.Uint(&v.entries, "max-entries", "`number` of names to list at most")
		f.Uint(&v.files, "max-files", "`number` of files to open at most")
		f.Uint(&v.read, "max-read", "`MiB` to read of one file at most")
		f.Uint(&v.total, "max-total", "`MiB` to read at most")
		f.Uint(&v.keeping, "max-text", "`KiB` of text to keep of one file at most")
	},
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		return surfaceArgs.ask(e)
	},
}

// ask looks, stores and judges.
func (v *surfaceFlags) ask(e *cli.Env) error {
	at, m, err := v.question()
	if err != nil {
		return err
	}
	c, err := surface.NewCondition(at, m)
	if err != nil {
		return cli.Failf(cli.ExitUsage, "", "%w", err)
	}
	given := map[string]string{"-run": v.run, "-folder": v.folder, "-tar": v.tar, "-oci": v.oci, "-bucket": v.bucket, "-mcp": v.mcp, "-observation": v.observation}
	if err := oneOf(given, "cleanrun help surface lists the sources", "source"); err != nil {
		return err
	}
	for flag, needs := range map[string]struct{ value, with, given string }{"-identity": {v.identity, "-run", v.run}, "-root": {v.root, "-run", v.run}, "-image": {v.image, "-oci", v.oci}} {
		if needs.value != "" && needs.given == "" {
			return cli.Failf(cli.ExitUsage, "", "%s means nothing without %s", flag, needs.with)
		}
	}
	if (v.mcp != "") != (e.Program != nil) {
		return cli.Failf(cli.ExitUsage, "cleanrun surface -mcp ROOT -at PATH -- CMD ARG...", "-mcp and a server's command after -- belong together")
	}
	var o *surface.Observation
	if v.observation != "" {
		if v.out != "" || v.from+v.to+v.during+v.attempt != "" || len(v.labels) > 0 {
			return cli.Failf(cli.ExitUsage, "scope and limits are those that it was made with", "-o and flags of a scope mean nothing with a stored observation")
		}
		b, err := regular.ReadGiven(v.observation, surface.MaxObservation)
		if err != nil {
			return err
		}
		if o, err = surface.Parse(b); err != nil {
			return cli.Failf(cli.ExitInvalid, "give a file that cleanrun surface -o wrote", "%s: %w", v.observation, err)
		}
	} else if o, err = v.observe(e, at); err != nil {
		return err
	}
	if v.out != "" {
		b, err := surface.Format(o)
		if err == nil {
			err = durable.CreateNew(v.out, b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	r, err := surface.Judge(c, o)
	var other *surface.DifferentLocationError
	if errors.As(err, &other) {
		return cli.Failf(cli.ExitUsage, "ask for the location that was observed, or observe again", "%s: %w", v.observation, err)
	}
	if err != nil {
		return err
	}
	if e.JSON {
		err = e.PrintJSON(surfaceReport(c, o, r))
	} else {
		_, err = fmt.Fprint(e.Stdout, surfaceText(c, o, r))
	}
	if err != nil {
		return err
	}
	switch r.Outcome {
	case surface.True:
		return nil
	case surface.False:
		return cli.Exit(cli.ExitDirty)
	}
	return cli.Exit(cli.ExitInconclusive)
}

// oneOf refuses none and several of flags that exclude each other.
func oneOf(given map[string]string, hint, what string) error {
	var names, set []string
	for name, value := range given {
		names = append(names, name)
		if value != "" {
			set = append(set, name)
		}
	}
	sort.Strings(names)
	sort.Strings(set)
	switch {
	case len(set) > 1:
		return cli.Failf(cli.ExitUsage, hint, "got %s, want one %s", strings.Join(set, " and "), what)
	case len(set) == 0 && what != "matcher":
		return cli.Failf(cli.ExitUsage, hint, "no %s: want one of %s", what, strings.Join(names, ", "))
	}
	return nil
}

// question is the location and the matcher.
func (v *surfaceFlags) question() (at surface.Location, m surface.Matcher, err error) {
	if err := oneOf(map[string]string{"-at": v.path, "-glob": v.glob}, "", "location"); err != nil {
		return at, m, err
	}
	at = surface.Location{Path: v.path + v.glob, Glob: v.glob != ""}
	if err := oneOf(map[string]string{"-contains": v.contains, "-equals": v.equals, "-equals-file": v.equalsFile, "-regex": v.regex}, "", "matcher"); err != nil {
		return at, m, err
	}
	m.IgnoreCase = v.ignoreCase
	switch {
	case v.contains != "":
		m.Kind, m.Text = surface.Contains, v.contains
	case v.equals != "":
		m.Kind, m.Text = surface.Equals, v.equals
	case v.regex != "":
		m.Kind, m.Text = surface.Regex, v.regex
	case v.equalsFile != "":
		b, err := regular.ReadGiven(v.equalsFile, surface.MaxWanted)
		if err != nil {
			return at, m, err
		}
		m.Kind, m.Text = surface.Equals, string(b)
	}
	return at, m, nil
}

// observe asks the source. Ctrl-C ends it, with what was seen until then.
func (v *surfaceFlags) observe(e *cli.Env, at surface.Location) (*surface.Observation, error) {
	scope, err := v.scope()
	if err != nil {
		return nil, err
	}
	limits := surface.Limits{Entries: int(v.entries), Files: int(v.files), Read: int64(v.read) << 20, Total: int64(v.total) << 20, Text: int64(v.keeping) << 10}
	if err := errors.Join(at.Check(), scope.Check(), limits.Check()); err != nil {
		return nil, cli.Failf(cli.ExitUsage, "", "%w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s, end, err := v.source(ctx, e.Program)
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := os.Stat(v.folder); v.folder != "" && errors.Is(err, os.ErrNotExist) {
		e.Warn("-folder %s: there is no such folder, so nothing can be said of what it holds", quotePath(v.folder))
	}
	return surface.Observe(ctx, s, at, scope, limits)
}

// source opens what is asked, and says how to close it.
func (v *surfaceFlags) source(ctx context.Context, program []string) (surface.Source, func() error, error) {
	switch {
	case v.folder != "":
		return &surface.Folder{Path: v.folder}, func() error { return nil }, nil
	case v.tar != "":
		return oci.Tar(v.tar), func() error { return nil }, nil
	case v.oci != "":
		s, err := oci.Layout(v.oci, v.image)
		if err != nil {
			return nil, nil, cli.Failf(cli.ExitUsage, "name one with -image", "%w", err)
		}
		return s, s.Close, nil
	case v.bucket != "":
		dir, ok := strings.CutPrefix(v.bucket, "file://")
		if !ok || !strings.HasPrefix(dir, "/") {
			return nil, nil, cli.Failf(cli.ExitUsage, "other stores: package surface/blob takes any bucket that gocloud.dev/blob opens", "-bucket: got %q, want file:///DIR", v.bucket)
		}
		b, err := fileblob.OpenBucket(filepath.FromSlash(dir), nil)
		if err != nil {
			return nil, nil, err
		}
		return &surfaceblob.Source{Bucket: b, Name: "file bucket"}, b.Close, nil
	case v.mcp != "":
		c, err := mcp.Start(ctx, program)
		if err != nil {
			return nil, nil, err
		}
		return &mcp.Source{Client: c, Root: v.mcp}, c.Close, nil
	}
	root, private, err := openRun(v.run, v.identity)
	if err != nil {
		return nil, nil, err
	}
	s, err := rundir.Open(root, private)
	if err != nil {
		root.Close()
		return nil, nil, fmt.Errorf("%s: %w", v.run, err)
	}
	if v.root != "" {
		if !strings.HasPrefix(v.root, "/") || filepath.ToSlash(filepath.Clean(v.root)) != v.root {
			return nil, nil, errors.Join(cli.Failf(cli.ExitUsage, "", "-root: got %q, want a clean absolute path", v.root), root.Close())
		}
		s.Folder = v.root
	}
	return s, func() error { return errors.Join(s.Close(), root.Close()) }, nil
}

// scope is whose entries count.
func (v *surfaceFlags) scope() (s surface.Scope, err error) {
	s.Attempt = v.attempt
	for _, l := range v.labels {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return s, cli.Failf(cli.ExitUsage, "", "-label: got %q, want NAME=VALUE", l)
		}
		s.Labels = append(s.Labels, surface.Label{Name: name, Value: value})
	}
	sort.Slice(s.Labels, func(i, j int) bool { return s.Labels[i].Name < s.Labels[j].Name })
	if v.during != "" {
		if v.from+v.to != "" {
			return s, cli.Failf(cli.ExitUsage, "", "-during and -from or -to: want one window")
		}
		w, err := runWindow(v.during)
		s.Window = &w
		return s, err
	}
	if v.from+v.to == "" {
		return s, nil
	}
	w := surface.Window{From: math.MinInt64, To: math.MaxInt64}
	for _, end := range []struct {
		flag, text string
		to         *int64
	}{{"-from", v.from, &w.From}, {"-to", v.to, &w.To}} {
		if end.text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, end.text)
		n := surface.Stamp(t)
		if err != nil || n == nil {
			return s, cli.Failf(cli.ExitUsage, "for example 2026-05-01T12:00:00Z", "%s: got %q, want a time as RFC 3339 writes it", end.flag, end.text)
		}
		*end.to = *n
	}
	s.Window = &w
	return s, nil
}

// runWindow is the time in which a run folder was written, by its files: the secret is
// the first, the journal the last. A copy that did not keep their times does not span
// what the journal's own clock says.
func runWindow(dir string) (surface.Window, error) {
	rows, err := regular.At(filepath.Join(dir, journal.RowsFile), os.O_RDONLY)
	if err != nil {
		return surface.Window{}, fmt.Errorf("%s: %w", dir, err)
	}
	defer rows.Close()
	last, err := rows.Stat()
	if err != nil {
		return surface.Window{}, err
	}
	first, err := os.Lstat(filepath.Join(dir, journal.SecretFile))
	if errors.Is(err, os.ErrNotExist) {
		first, err = os.Lstat(filepath.Join(dir, vault.SecretFile))
	}
	if err != nil {
		return surface.Window{}, fmt.Errorf("%s: %w", dir, err)
	}
	lasted := time.Duration(0)
	for line, err := range journal.Rows(rows) {
		if err != nil {
			break // a run that was killed
		}
		lasted = time.Duration(line.Row.Time)
	}
	span := last.ModTime().Sub(first.ModTime())
	if span < lasted-50*time.Millisecond || span > lasted+10*time.Second {
		return surface.Window{}, cli.Failf(cli.ExitUsage, "give -from and -to, or ask the run itself with -run",
			"%s: its files span %v and its journal %v: it was copied without its times", dir, span, lasted)
	}
	return surface.WindowOf(first.ModTime(), last.ModTime(), surface.Skew)
}

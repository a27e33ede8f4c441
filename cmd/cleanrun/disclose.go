package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"filippo.io/age"

	"github.com/cleanrun-dev/cleanrun/disclosure"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scanner"
)

type discloseOptions struct {
	events, to                   []string
	content                      bool
	identity, out, check, policy string
}

var discloseFlags discloseOptions

var discloseCommand = &cli.Command{
	Name:  "disclose",
	Args:  "RUNDIR|out.cleanrun",
	Short: "show single events to somebody who has the receipt, or check what was shown",
	Long: `With -event, writes a file that opens these events of a run folder: path, command line and the rest of the private detail, with
the proof that the recorder committed to them; with -content their contents too. It opens nothing else. With -to only the holder of that
age identity can read it. Event numbers are those of verify, explain and inspect.

With -check, opens such a file on the other side and holds it to the bundle: each event's row is one of those that the receipt signs, the
detail opens its commitment, its path and all folders above are those of the row, and a content has the SHA-256 in the detail. The
bundle is verified first. -o then names a new folder for the contents.

Exit codes of -check: 0 all of it holds, 1 it does not hold or the bundle is INVALID, 2 unreadable, 3 it holds, but no -policy says who
signed the receipt.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &discloseFlags
		f.Strings(&v.events, "event", "`number` of an event to show")
		f.Bool(&v.content, "content", "show the contents of these events too")
		f.Strings(&v.to, "to", "encrypt to this age `recipient`")
		f.String(&v.check, "check", "disclosed `file` to hold against the bundle")
		f.String(&v.policy, "policy", "with -check: policy `file` that pins owners and runners")
		f.String(&v.identity, "identity", "age identity `file` that opens an encrypted recording, or the file of -check")
		f.String(&v.out, "o", "`file` to write; with -check a new folder for the contents")
	},
	Run: func(e *cli.Env, args []string) error {
		v := discloseFlags
		if v.check != "" {
			path, err := oneArg(args, "the bundle (out.cleanrun)")
			if err != nil {
				return err
			}
			if len(v.events) > 0 || len(v.to) > 0 || v.content {
				return cli.Failf(cli.ExitUsage, "leave them out", "-check shows all that is in the file: -event, -to and -content mean nothing")
			}
			return checkDisclosure(e, v, path)
		}
		path, err := oneArg(args, "the run folder")
		if err != nil {
			return err
		}
		if v.policy != "" {
			return cli.Failf(cli.ExitUsage, "leave it out", "-policy without -check means nothing")
		}
		if len(v.events) == 0 || v.out == "" {
			return cli.Failf(cli.ExitUsage, "cleanrun disclose -event 57 -o FILE RUNDIR; cleanrun inspect -events RUNDIR lists them", "-event and -o are needed")
		}
		return disclose(e, v, path)
	},
}

// disclose writes the disclosure of some events.
func disclose(e *cli.Env, v discloseOptions, dir string) error {
	var seqs []uint64
	for _, s := range v.events {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || strconv.FormatUint(n, 10) != s {
			return cli.Failf(cli.ExitUsage, "", "-event: got %q, want a number", s)
		}
		seqs = append(seqs, n)
	}
	slices.Sort(seqs)
	if len(seqs) > disclosure.MaxEvents {
		return cli.Failf(cli.ExitUsage, "", "got %d events, want at most %d in one file", len(seqs), disclosure.MaxEvents)
	}
	var to []age.Recipient
	if len(v.to) > 0 {
		var err error
		if to, _, err = vault.Recipients(v.to); err != nil {
			return cli.Failf(cli.ExitUsage, "age-keygen makes an identity and prints its recipient", "%w", err)
		}
	}
	root, private, err := openRun(dir, v.identity)
	if err != nil {
		return err
	}
	defer root.Close()
	secret, err := private.Secret()
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	f := &disclosure.File{Version: disclosure.Version}
	for _, seq := range seqs {
		d, err := openEvent(private, secret, seq)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		event := disclosure.Event{}
		if event.Opening, err = journal.FormatDisclosure(d); err != nil {
			return err
		}
		row, err := journal.ParseRow(d.Row.Row)
		if err != nil {
			return err
		}
		start, err := journal.ParseRow(d.Start.Row)
		if err != nil {
			return err
		}
		f.Run = start.Start.Run
		if v.content && row.Size > 0 && row.Flags&journal.FlagText == 0 {
			content, err := contentOf(private, d, row.Size)
			if err != nil {
				return fmt.Errorf("%s: event %d: %w", dir, seq, err)
			}
			event.Content = &content
		}
		f.Events = append(f.Events, event)
	}
	raw, err := disclosure.Format(f)
	if err != nil {
		return err
	}
	if len(to) > 0 {
		var b bytes.Buffer
		w, err := age.Encrypt(&b, to...)
		if err == nil {
			_, err = w.Write(raw)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			return err
		}
		raw = b.Bytes()
	}
	if err := durable.CreateNew(v.out, raw, 0o600); err != nil {
		return err
	}
	if e.JSON {
		return e.PrintJSON(struct {
			File      string   `json:"file"`
			Events    []uint64 `json:"events"`
			Bytes     int      `json:"bytes"`
			Encrypted bool     `json:"encrypted"`
		}{v.out, seqs, len(raw), len(to) > 0})
	}
	who := "anybody who has the receipt can read them"
	if len(to) > 0 {
		who = "only " + strings.Join(v.to, ", ") + " can read them"
	}
	fmt.Fprintf(e.Stdout, "disclosed %s in %s: %s\n next  cleanrun disclose -check %s out.cleanrun\n", counted(len(seqs), "event"), v.out, who, v.out)
	return nil
}

func openEvent(private vault.Folder, secret journal.Secret, seq uint64) (*journal.Disclosure, error) {
	rows, err := regular.In(private.Root, journal.RowsFile)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	details, err := private.Details()
	if err != nil {
		return nil, err
	}
	defer details.Close()
	return journal.Disclose(rows, details, secret, seq)
}

// contentOf reads the content of an opened row.
func contentOf(private vault.Folder, d *journal.Disclosure, size uint64) ([]byte, error) {
	if size > disclosure.MaxFile {
		return nil, fmt.Errorf("got a content of %d bytes, want at most %d in a disclosure: leave out -content", size, disclosure.MaxFile)
	}
	detail, err := journal.ParseDetail(d.Detail)
	if err != nil {
		return nil, err
	}
	if len(detail.SHA256) != len(objects.Sum{}) {
		return nil, errors.New("its detail has no digest of a content")
	}
	store, err := private.Root.OpenRoot(scanner.ObjectsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("the contents were pruned: leave out -content")
	}
	if err != nil {
		return nil, err
	}
	defer store.Close()
	b, err := objects.Source{Root: store, Keys: private.Keys}.ReadAll(objects.Sum(detail.SHA256), int64(size))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("the content is not stored: it stands in the baseline, as in the task's workspace")
	}
	return b, err
}

type shownEvent struct {
	Event   eventJSON `json:"event"`
	Cwd     string    `json:"cwd,omitempty"`
	Asked   string    `json:"asked,omitempty"`
	SHA256  string    `json:"sha256,omitempty"`
	Text    string    `json:"text,omitempty"`
	Removed bool      `json:"removed"` // secrets were replaced before it was recorded
	Content string    `json:"content"` // "none", "not disclosed", "proven"
	File    string    `json:"file,omitempty"`
}

type checkedDisclosure struct {
	Run      string       `json:"run"`
	Verdict  string       `json:"verdict"` // of the bundle
	Pinned   bool         `json:"pinned"`  // the policy says who signed it
	Events   []shownEvent `json:"events"`
	Proven   []string     `json:"proven"`
	Asserted []string     `json:"asserted"`
	Exit     int          `json:"exit"`
}

// provenBy and assertedBy say what a disclosure that holds proves.
var (
	provenBy = []string{"these events are among those that the receipt signs", "path, folders above it and details are those that the recorder committed to when it wrote them",
		"a content that is shown has the SHA-256 that it committed to"}
	assertedBy = []string{"that the recorder saw what happened", "that events which are not shown would not say otherwise"}
)

// checkDisclosure opens a disclosed file and holds it to a bundle.
func checkDisclosure(e *cli.Env, v discloseOptions, bundle string) error {
	raw, err := readDisclosed(v.check, v.identity)
	if err != nil {
		return err
	}
	f, err := disclosure.Parse(raw)
	if err != nil {
		return cli.Failf(cli.ExitUsage, "cleanrun disclose -event writes such files; an encrypted one needs -identity", "%s: %w", v.check, err)
	}
	report, err := verifyFile(bundle, v.policy)
	if err != nil {
		return err
	}
	if c := report.FailedCheck(); c != nil {
		return cli.Failf(cli.ExitInvalid, c.Hint, "%s: %s: check %s failed: %s", bundle, report.Verdict, c.ID, c.Detail)
	}
	ev, err := readEvents(bundle, "")
	if err != nil {
		return err
	}
	shown, err := f.Verify(ev.summary.Head)
	if err != nil {
		return cli.Failf(cli.ExitInvalid, "it was made from another run, or changed: ask for it again", "%s: %w", v.check, err)
	}
	out := checkedDisclosure{Run: fmt.Sprintf("%x", f.Run), Verdict: report.Verdict, Pinned: report.Runner != nil && report.Runner.Pinned,
		Proven: provenBy, Asserted: assertedBy}
	if !out.Pinned {
		out.Exit = cli.ExitInconclusive
	}
	if v.out != "" {
		if err := os.Mkdir(v.out, 0o700); err != nil {
			return err
		}
	}
	var b strings.Builder
	ev.details, ev.known = make([]journal.Detail, len(ev.rows)), true
	for _, s := range shown {
		ev.details[s.Row.Seq] = s.Detail
	}
	for _, s := range shown {
		one := shownEvent{Event: eventOf(ev, s.Row.Seq), Cwd: s.Detail.Cwd, Asked: s.Detail.Asked, Removed: s.Row.Flags&journal.FlagRemoved != 0, Content: "none"}
		if len(s.Detail.SHA256) > 0 {
			one.SHA256 = fmt.Sprintf("%x", s.Detail.SHA256)
		}
		switch {
		case s.Row.Flags&journal.FlagText != 0:
			one.Text, one.Content = string(s.Detail.Text), "proven"
		case s.Content != nil:
			one.Content = "proven"
			if v.out != "" {
				one.File = filepath.Join(v.out, fmt.Sprintf("event-%d", s.Row.Seq))
				if err := durable.CreateNew(one.File, s.Content, 0o600); err != nil {
					return err
				}
			}
		case s.Row.Size > 0:
			one.Content = "not disclosed"
		}
		out.Events = append(out.Events, one)
		one.write(&b, ev, s)
	}
	if e.JSON {
		if err := e.PrintJSON(out); err != nil {
			return err
		}
	} else {
		signer := "runner unknown: give a policy with -policy"
		if out.Pinned {
			signer = "run by " + report.Runner.Name + " (pinned runner)"
		}
		fmt.Fprintf(e.Stdout, "%s: holds, %s of run %s\n %s\n", v.check, counted(len(shown), "event"), out.Run, quotePath(signer))
		io.WriteString(e.Stdout, b.String())
		fmt.Fprintf(e.Stdout, " proven    %s\n asserted  %s\n", strings.Join(out.Proven, "; "), strings.Join(out.Asserted, "; "))
	}
	if out.Exit != 0 {
		return cli.Exit(out.Exit)
	}
	return nil
}

// write appends the event's lines.
func (s *shownEvent) write(b *strings.Builder, ev *events, shown disclosure.Shown) {
	fmt.Fprintln(b, eventLine(ev, s.Event.Event))
	if s.Cwd != "" {
		fmt.Fprintf(b, "         in %s\n", quotePath(s.Cwd))
	}
	if s.Asked != "" {
		fmt.Fprintf(b, "         asked for as %q\n", s.Asked)
	}
	if len(shown.Detail.Env) > 0 {
		fmt.Fprintf(b, "         variables %q\n", shown.Detail.Env)
	}
	switch {
	case s.Text != "" && len(s.Event.Argv) == 0:
		fmt.Fprintf(b, "         text %q\n", s.Text)
	case s.File != "":
		fmt.Fprintf(b, "         content in %s, SHA-256 as committed\n", quotePath(s.File))
	case s.Content == "proven" && shown.Content != nil:
		fmt.Fprintf(b, "         content shown, SHA-256 as committed; -o DIR writes it\n")
	case s.Content == "not disclosed":
		fmt.Fprintf(b, "         content not disclosed, SHA-256 %s\n", s.SHA256)
	}
	if s.Removed {
		fmt.Fprintf(b, "         secrets were replaced by asterisks before it was recorded\n")
	}
}

// ageIntro begins each age file (age-encryption.org/v1).
const ageIntro = "age-encryption.org/v1\n"

// readDisclosed reads a disclosed file, which may be encrypted.
func readDisclosed(path, identity string) ([]byte, error) {
	raw, err := readFile(path, disclosure.MaxFile+disclosure.MaxFile/1024)
	if err != nil {
		return nil, err
	}
	ids, err := readIdentities(identity)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(raw, []byte(ageIntro)) {
		if identity != "" {
			return nil, cli.Failf(cli.ExitUsage, "leave out -identity", "%s is not encrypted, and -identity means nothing", path)
		}
		return raw, nil
	}
	if identity == "" {
		return nil, cli.Failf(cli.ExitUsage, "give the age identity file that it was made for with -identity", "%s is encrypted", path)
	}
	r, err := age.Decrypt(bytes.NewReader(raw), ids...)
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) {
		return nil, cli.Failf(cli.ExitUsage, "ask for whom it was made (-to)", "%s: it was encrypted to another recipient than those of %s", path, identity)
	}
	if err == nil {
		raw, err = io.ReadAll(io.LimitReader(r, disclosure.MaxFile+1))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return raw, nil
}

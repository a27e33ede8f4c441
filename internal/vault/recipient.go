package vault

import (
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// Recipients reads native recipients (age1..., age1pq1...), one in each text, and
// returns them with the text for RecipientsFile. SSH keys and plugins are not
// taken: an identity must be a file that works offline.
func Recipients(list []string) ([]age.Recipient, string, error) {
	var out []age.Recipient
	var text strings.Builder
	for _, s := range list {
		r, err := age.ParseRecipients(strings.NewReader(s))
		if err != nil || len(r) != 1 || strings.ContainsAny(s, " \t\r\n#") {
			return nil, "", fmt.Errorf("recipient %q: want age1... or age1pq1..., as age-keygen prints it", s)
		}
		out = append(out, r...)
		text.WriteString(s + "\n")
	}
	if len(out) == 0 {
		return nil, "", fmt.Errorf("got no recipient, want at least one")
	}
	return out, text.String(), nil
}

// RecipientLines returns the recipients of a file as age reads it: one a line,
// blank lines and those that begin with # are left out.
func RecipientLines(file []byte) (out []string) {
	for line := range strings.Lines(string(file)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// Identities reads an identity file as age-keygen writes it.
func Identities(r io.Reader) ([]age.Identity, error) {
	ids, err := age.ParseIdentities(r)
	if err != nil {
		// The library's text may quote the line, and with it a secret.
		return nil, fmt.Errorf("no identity file: want lines AGE-SECRET-KEY-..., as age-keygen writes them")
	}
	return ids, nil
}

package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pathDirs are the directories that the programs on PATH need. A directory
// named bin or shims belongs to a prefix with its libraries (a virtual
// environment, pyenv, node): then the prefix is shown, unless it is a home or
// holds other things than tools.
func pathDirs(env []string, home string) []string {
	var out []string
	add := func(d string) {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	for _, d := range filepath.SplitList(lookup(env, "PATH")) {
		if !filepath.IsAbs(d) {
			continue
		}
		d = filepath.Clean(d)
		add(d)
		if up := prefixOf(d, home); up != "" {
			add(up)
		}
		for _, target := range linkTargets(d) {
			add(target)
			if up := prefixOf(target, home); up != "" {
				add(up)
			}
		}
		if filepath.Base(filepath.Dir(d)) == ".cargo" { // the programs there are links to one that starts others
			if toolchains := filepath.Join(home, ".rustup"); home != "" {
				add(toolchains)
			}
		}
	}
	return out
}

// prefixOf is the installation that a bin directory belongs to, or "".
func prefixOf(d, home string) string {
	up := filepath.Dir(d)
	switch filepath.Base(d) {
	case "bin", "sbin", "shims", "libexec":
	default:
		return ""
	}
	if up == "/" || up == home || home != "" && (up == filepath.Join(home, ".local") || up == filepath.Join(home, ".cargo")) {
		return ""
	}
	for _, sign := range []string{"lib", "lib64", "libexec", "versions", "pkg", "pyvenv.cfg"} {
		if _, err := os.Stat(filepath.Join(up, sign)); err == nil {
			return up
		}
	}
	return ""
}

// linkTargets are the directories outside d that symbolic links in d lead to.
func linkTargets(d string) []string {
	const most = 1024
	entries, err := os.ReadDir(d)
	if err != nil || len(entries) > most {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(d, e.Name()))
		if err != nil {
			continue
		}
		if up := filepath.Dir(real); up != d && !strings.HasPrefix(up, "/usr/") && !slices.Contains(out, up) {
			out = append(out, up)
		}
	}
	return out
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// debian is a package of Debian's.
type debian struct {
	// name of the package, or of one that depends on the newest kernel of its kind.
	name string
	// pattern, of a regular expression, takes the newest package whose name matches, where nothing depends on it.
	pattern string
	// suite of the archive, where that is not among this machine's package sources: it is then read with sources and lists of its own, by the
	// machine's own mirror, and nothing here changes.
	suite string
}

func (d debian) String() string {
	name := d.name + strings.Trim(d.pattern, "^$")
	if d.suite != "" {
		name += " of " + d.suite
	}
	return name
}

// download fetches the package, or the one that a metapackage depends on, and unpacks it.
func (d debian) download(ctx context.Context, work, tree string) error {
	a := apt{dir: work}
	if d.suite != "" {
		if err := a.use(ctx, d.suite); err != nil {
			return err
		}
	}
	real, err := d.resolve(ctx, a)
	if err != nil {
		// Package lists may be missing or out of date; apt says if refreshing them fails.
		if _, err := a.run(ctx, "apt-get", "-q", "update"); err != nil {
			return err
		}
		if real, err = d.resolve(ctx, a); err != nil {
			return fmt.Errorf("%w (Debian's security updates must be among this machine's package sources)", err)
		}
	}
	if _, err := a.run(ctx, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", real); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("download %s: apt-get left %d files", real, len(found))
	}
	_, err = output(ctx, work, "dpkg-deb", "-x", found[0], tree)
	return err
}

var kernelDependency = regexp.MustCompile(`(?m)^Depends: (linux-image-\S+)`)

// resolve follows a kernel's metapackage, or the pattern, to the package with the kernel.
func (d debian) resolve(ctx context.Context, a apt) (string, error) {
	if d.pattern != "" {
		found, err := a.run(ctx, "apt-cache", "search", "--names-only", d.pattern)
		if err != nil {
			return "", fmt.Errorf("find %s: %w", d, err)
		}
		return newestOf(found)
	}
	shown, err := a.run(ctx, "apt-cache", "--no-all-versions", "show", d.name)
	if err != nil {
		return "", fmt.Errorf("find Debian package %s: %w", d, err)
	}
	if m := kernelDependency.FindStringSubmatch(shown); m != nil {
		return m[1], nil
	}
	return d.name, nil
}

var errNotFound = errors.New("no such package")

// newestOf gives the name with the highest numbers in it, of the lines of `apt-cache search`.
func newestOf(found string) (string, error) {
	var names []string
	for line := range strings.Lines(found) {
		if name, _, _ := strings.Cut(line, " "); strings.TrimSpace(name) != "" {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if len(names) == 0 {
		return "", errNotFound
	}
	return slices.MaxFunc(names, func(a, b string) int { return slices.Compare(numbersOf(a), numbersOf(b)) }), nil
}

var number = regexp.MustCompile(`[0-9]+`)

func numbersOf(name string) (all []int) {
	for _, digits := range number.FindAllString(name, -1) {
		n := 0
		for _, d := range digits {
			n = n*10 + int(d-'0')
		}
		all = append(all, n)
	}
	return all
}

// apt runs apt's commands in a directory, with its own sources once a suite is used.
type apt struct {
	dir  string
	conf string
}

func (a apt) run(ctx context.Context, name string, args ...string) (string, error) {
	if a.conf != "" {
		args = append([]string{"-c", a.conf}, args...)
	}
	return output(ctx, a.dir, name, args...)
}

// use makes sources and lists for one suite of the archive that this machine's own release is from.
func (a *apt) use(ctx context.Context, suite string) error {
	uri, err := archiveURI(ctx)
	if err != nil {
		return err
	}
	own := filepath.Join(a.dir, "apt")
	for _, dir := range []string{"sources", "lists/partial"} {
		if err := os.MkdirAll(filepath.Join(own, dir), 0o755); err != nil {
			return err
		}
	}
	a.conf = filepath.Join(own, "apt.conf")
	for path, text := range map[string]string{
		filepath.Join(own, "sources/suite.sources"): fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n"+
			"Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n", uri, suite),
		a.conf: fmt.Sprintf("Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts \"%s/sources\";\nDir::State::lists \"%s/lists\";\n"+
			"Dir::Cache::pkgcache \"\";\nDir::Cache::srcpkgcache \"\";\nAPT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n", own, own),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	_, err = a.run(ctx, "apt-get", "-q", "update")
	return err
}

// archiveURI is where this machine gets its own release from, as apt sees it, so that no mirror is named here.
func archiveURI(ctx context.Context) (string, error) {
	targets, err := output(ctx, "", "apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(CODENAME) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(targets) {
		if words := strings.Fields(line); len(words) == 4 && words[0] == "Debian" && words[1] == "main" && !strings.Contains(words[2], "-") {
			return words[3], nil
		}
	}
	return "", errors.New("none of this machine's package sources is a release of Debian")
}

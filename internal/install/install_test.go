package install

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
)

// node is a node's directories and the programs to install.
func node(t *testing.T) Config {
	t.Helper()
	dir := t.TempDir()
	c := Config{
		ConfDir: filepath.Join(dir, "net.d"), BinDir: filepath.Join(dir, "cni"), CommandDir: filepath.Join(dir, "bin"),
		From: filepath.Join(dir, "image"), Socket: "/run/beeline/agent.sock",
	}
	for _, name := range []string{Plugin, PortMap, Command, Agent} {
		write(t, filepath.Join(c.From, name), "program "+name, 0o755)
	}
	return c
}

func write(t *testing.T, name, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func installer(t *testing.T, c Config) *Installer {
	t.Helper()
	i, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// sync syncs and wants no problem.
func (i *Installer) mustSync(t *testing.T) {
	t.Helper()
	if problems, err := i.Sync(); err != nil || len(problems) > 0 {
		t.Fatalf("problems %q, error %v", problems, err)
	}
}

// installed checks that everything is in place, and nothing else.
func installed(t *testing.T, c Config) {
	t.Helper()
	for name, mode := range map[string]fs.FileMode{
		filepath.Join(c.BinDir, Plugin): 0o755, filepath.Join(c.BinDir, PortMap): 0o755,
		filepath.Join(c.CommandDir, Command): 0o755, filepath.Join(c.CommandDir, Agent): 0o755, filepath.Join(c.ConfDir, Conflist): 0o600,
	} {
		info, err := os.Lstat(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), mode)
		}
		if content, err := os.ReadFile(name); err != nil || mode == 0o755 && string(content) != "program "+filepath.Base(name) {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
	for dir, want := range map[string]int{c.BinDir: 2, c.CommandDir: 2, c.ConfDir: 1} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
			t.Errorf("%s has %v, %v", dir, entries, err)
		}
	}
}

func TestSyncInstalls(t *testing.T) {
	for _, portMap := range []bool{false, true} {
		c := node(t)
		c.PortMap = portMap
		installer(t, c).mustSync(t)
		installed(t, c)

		// The runtime's own reader parses it, and selects it.
		files, err := libcni.ConfFiles(c.ConfDir, []string{".conf", ".conflist", ".json"})
		if err != nil || len(files) != 1 {
			t.Fatalf("files %v, error %v", files, err)
		}
		list, err := libcni.ConfListFromFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		want := []string{Plugin}
		if portMap {
			want = append(want, PortMap)
		}
		if list.Name != "beeline" || list.CNIVersion != "1.0.0" || len(list.Plugins) != len(want) {
			t.Fatalf("network %q, version %s, %d plugins, want %d", list.Name, list.CNIVersion, len(list.Plugins), len(want))
		}
		for n, want := range want {
			if p := list.Plugins[n].Network; p.Type != want || !p.Capabilities["portMappings"] {
				t.Errorf("plugin %d is %q with capabilities %v", n, p.Type, p.Capabilities)
			}
		}
		if !strings.Contains(string(list.Plugins[0].Bytes), `"agentSocket":"/run/beeline/agent.sock"`) {
			t.Errorf("plugin 0 is %s", list.Plugins[0].Bytes)
		}
	}
}

func TestSyncMendsAndLeavesAlone(t *testing.T) {
	c := node(t)
	i := installer(t, c)
	i.mustSync(t)
	stampNow := func(name string) stamp {
		s, err := stampOf(name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	conflist, plugin := filepath.Join(c.ConfDir, Conflist), filepath.Join(c.BinDir, Plugin)
	before := stampNow(plugin)
	i.mustSync(t)
	installer(t, c).mustSync(t) // another agent, of the same version
	if now := stampNow(plugin); now != before {
		t.Error("a plugin that is right was written again")
	}

	wrote := func(name, content string, mode fs.FileMode) error { write(t, name, content, mode); return nil }
	for what, harm := range map[string]func() error{
		"removed":        func() error { return os.Remove(conflist) },
		"truncated":      func() error { return os.Truncate(conflist, 10) },
		"longer":         func() error { return wrote(conflist, strings.Repeat("x", 1000), 0o600) },
		"emptied":        func() error { return os.Truncate(plugin, 0) },
		"same size":      func() error { return wrote(plugin, "PROGRAM "+Plugin, 0o755) },
		"not executable": func() error { return os.Chmod(plugin, 0o644) },
		"a symbolic link": func() error {
			return errors.Join(os.Remove(plugin), os.Symlink(filepath.Join(c.BinDir, PortMap), plugin))
		},
		"the directory": func() error { return os.RemoveAll(c.BinDir) },
		"killed half-way": func() error {
			return errors.Join(wrote(filepath.Join(c.ConfDir, unfinished+"1"), "{", 0o600), os.Remove(conflist))
		},
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		i.mustSync(t)
		installed(t, c)
		if t.Failed() {
			t.Fatalf("after: %s", what)
		}
	}
}

// A new version's plugin replaces the old one by rename: a running one is not affected.
func TestSyncReplacesByRename(t *testing.T) {
	c := node(t)
	installer(t, c).mustSync(t)
	plugin := filepath.Join(c.BinDir, Plugin)
	running, err := os.Open(plugin)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	write(t, filepath.Join(c.From, Plugin), "new program", 0o755)
	installer(t, c).mustSync(t)
	old, content := make([]byte, 100), ""
	n, _ := running.Read(old)
	if b, err := os.ReadFile(plugin); err == nil {
		content = string(b)
	}
	if string(old[:n]) != "program "+Plugin || content != "new program" {
		t.Errorf("the open one reads %q, the new one %q", old[:n], content)
	}
}

// The configuration never exists without the plugins that it names, and no unfinished file remains.
func TestConflistComesLast(t *testing.T) {
	c := node(t)
	if err := os.Remove(filepath.Join(c.From, PortMap)); err != nil {
		t.Fatal(err)
	}
	if _, err := installer(t, c).Sync(); err == nil || !strings.Contains(err.Error(), "install "+filepath.Join(c.BinDir, PortMap)) {
		t.Errorf("error %v", err)
	}
	if entries, _ := os.ReadDir(c.ConfDir); len(entries) > 0 {
		t.Errorf("unexpected %s", entries[0].Name())
	}
	if entries, err := os.ReadDir(c.BinDir); err != nil || len(entries) != 1 || entries[0].Name() != Plugin {
		t.Errorf("plugins %v, error %v", entries, err)
	}
}

func TestSyncReportsOtherNetworks(t *testing.T) {
	c := node(t)
	for _, name := range []string{"00-other.conflist", "05-old.conf", "10-aaa.json", "10-zzz.conflist", "99-loopback.conf", "00-readme.txt", "00-old.conflist.bak"} {
		write(t, filepath.Join(c.ConfDir, name), "{}", 0o644)
	}
	problems, err := installer(t, c).Sync()
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) != 3 {
		t.Errorf("%d problems: %q", len(problems), problems)
	}
	for n, name := range []string{"00-other.conflist", "05-old.conf", "10-aaa.json"} {
		if n < len(problems) && !strings.HasPrefix(problems[n], name+" sorts before 10-beeline.conflist") {
			t.Errorf("problem %q", problems[n])
		}
	}
}

func TestNothingToInstall(t *testing.T) {
	i := installer(t, Config{From: "/nonexistent"})
	i.mustSync(t)
	if i.Watch(t.Context()) != nil {
		t.Error("a channel without directories to watch")
	}
}

func TestWatch(t *testing.T) {
	c := node(t)
	i := installer(t, c)
	changes := i.Watch(t.Context())
	i.mustSync(t)
	other := filepath.Join(c.ConfDir, "00-other.conflist")
	for _, change := range []struct {
		what string
		make func() error
	}{
		{"conflist removed", func() error { return os.Remove(filepath.Join(c.ConfDir, Conflist)) }},
		{"plugin removed", func() error { return os.Remove(filepath.Join(c.BinDir, Plugin)) }},
		{"another network", func() error { return os.WriteFile(other, nil, 0o600) }},
		{"no other network any more", func() error { return os.Remove(other) }},
	} {
		for quiet := false; !quiet; { // earlier notifications are not about this change
			select {
			case <-changes:
			case <-time.After(100 * time.Millisecond):
				quiet = true
			}
		}
		if err := change.make(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changes:
		case <-time.After(30 * time.Second):
			t.Errorf("%s: no notification", change.what)
		}
	}
}

func TestConcerns(t *testing.T) {
	i := installer(t, Config{ConfDir: "/net.d/", BinDir: "/cni"})
	for name, want := range map[string]bool{
		"/net.d/10-beeline.conflist": true, "/net.d/00-other.conf": true, "/cni/beeline-cni": true, "/cni/beeline-portmap": true,
		"/cni/bridge": false, "/net.d/notes.txt": false, "/net.d/" + unfinished + "1": false, "/cni/x.conf": false,
	} {
		if got := i.concerns(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRemove(t *testing.T) {
	c := node(t)
	installer(t, c).mustSync(t)
	other := filepath.Join(c.BinDir, "bridge")
	write(t, other, "x", 0o755)
	write(t, filepath.Join(c.BinDir, unfinished+"1"), "x", 0o755)
	removed, err := Remove(c)
	if err != nil || len(removed) != 5 || removed[0] != filepath.Join(c.ConfDir, Conflist) {
		t.Errorf("removed %q, error %v", removed, err)
	}
	if _, err := os.Stat(c.CommandDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command's directory: %v", err)
	}
	for dir, want := range map[string]int{c.ConfDir: 0, c.BinDir: 1} {
		if left, err := os.ReadDir(dir); err != nil || len(left) != want {
			t.Errorf("left %v, error %v", left, err)
		}
	}
	if removed, err := Remove(c); err != nil || len(removed) > 0 {
		t.Errorf("again: removed %q, error %v", removed, err)
	}
}

// One file that cannot be removed does not stop the removal of others.
func TestRemoveGoesOn(t *testing.T) {
	c := node(t)
	installer(t, c).mustSync(t)
	conflist := filepath.Join(c.ConfDir, Conflist)
	if err := os.Remove(conflist); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(conflist, "x"), "", 0o600) // a directory with something in it
	removed, err := Remove(c)
	if err == nil || len(removed) != 4 {
		t.Errorf("removed %q, error %v", removed, err)
	}
}

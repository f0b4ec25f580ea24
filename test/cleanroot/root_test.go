package cleanroot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// prerequisites are what the README says a machine needs. Go comes from this machine, since Debian's own is too old.
const prerequisites = "ca-certificates,git,make"

// root is a directory with a Debian system in which nothing is installed but the README's prerequisites.
type root struct {
	dir string
}

// newRoot installs the system by this machine's own package sources. It goes with the test.
func newRoot(t *testing.T) root {
	t.Helper()
	r := root{filepath.Join(t.TempDir(), "root")}
	sources := filepath.Join(t.TempDir(), "sources.list")
	if err := os.WriteFile(sources, []byte(packageSources(t)), 0o644); err != nil {
		t.Fatal(err)
	}
	output(t, exec.Command("mmdebstrap", "--mode=root", "--variant=minbase", "--include="+prerequisites, "bookworm", r.dir, sources))
	// What the machine knows of its network, and which certificates it trusts: a module proxy may have one of its own.
	for _, file := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"} {
		if text, err := os.ReadFile(file); err == nil {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(r.dir, file)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(r.dir, file), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return r
}

// packageSources are this machine's for the main component of Debian 12: apt says them, so that no mirror is named here.
func packageSources(t *testing.T) string {
	t.Helper()
	const format = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN) $(CODENAME)"
	var list strings.Builder
	for _, line := range strings.Split(output(t, exec.Command("apt-get", "indextargets", "--format", format, "Created-By: Packages")), "\n") {
		f := strings.Fields(line)
		if len(f) == 5 && f[2] == "main" && f[3] == "Debian" && strings.HasPrefix(f[4], "bookworm") && !strings.Contains(f[4], "backports") {
			fmt.Fprintf(&list, "deb %s %s main\n", f[0], f[4])
		}
	}
	if list.Len() == 0 {
		t.Fatal("apt knows no package source of Debian 12's main component: the machine has to be a Debian 12")
	}
	return list.String()
}

// copyTree puts the files of this repository, committed or not, into the root as the directory /root/beeline.
func (r root) copyTree(t *testing.T) {
	t.Helper()
	to := filepath.Join(r.dir, "root/beeline")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	output(t, exec.Command("bash", "-o", "pipefail", "-c",
		`cd ../.. && git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$1"`, "bash", to))
}

// enter prepares the mounts of a root that is $1, and runs the rest of the arguments in it. It does so in mount and process namespaces of
// its own, which end with it: mounts and agents with them.
const enter = `
set -eu
root=$1 goroot=$2 modules=$3 cache=$4
shift 4
mount --bind "$root" "$root" # / has to be a mount, as in a container: programs make it private
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
for pair in "$goroot:/usr/local/go" "$modules:/root/go/pkg/mod" "$cache:/root/.cache/go-build"; do
	mkdir -p "$root${pair#*:}"
	mount --bind "${pair%%:*}" "$root${pair#*:}"
done
exec chroot "$root" "$@"
`

// run runs a shell script in /root/beeline of the root and gives what it wrote. Go's caches are this machine's, which saves time only.
func (r root) run(t *testing.T, script string, limit time.Duration) string {
	t.Helper()
	environment := []string{"env", "-i", "HOME=/root", "TERM=dumb", "LANG=C.UTF-8", "PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, name := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GOFLAGS"} {
		if value := goEnv(t, name); value != "" {
			environment = append(environment, name+"="+value)
		}
	}
	args := []string{fmt.Sprint(limit.Seconds()), "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, "enter",
		r.dir, goEnv(t, "GOROOT"), goEnv(t, "GOMODCACHE"), goEnv(t, "GOCACHE")}
	args = append(args, environment...)
	return output(t, exec.Command("timeout", append(args, "sh", "-eux", "-c", "cd /root/beeline\n"+script)...))
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(output(t, exec.Command("go", "env", name)))
}

// output gives what a command writes, both streams; its failure is the test's.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd.Args[0], err, out)
	}
	return string(out)
}

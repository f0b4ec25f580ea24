package device

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// errNamespaceNotFound reports a namespace that the kernel knows but no path leads to.
var errNamespaceNotFound = errors.New("no process and no mount holds the network namespace")

// OpenPod opens the network namespace of a pod: see openNamespace. The error wraps ErrPodUnreachable.
func OpenPod(nsid int, hint string) (ns.NetNS, error) {
	inside, err := openNamespace(nsid, hint)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPodUnreachable, err)
	}
	return inside, nil
}

// openNamespace opens the network namespace that has the id nsid in this one: at the path hint if that is still its path, else through
// a process or a mount of this machine that holds it.
func openNamespace(nsid int, hint string) (ns.NetNS, error) {
	if opened := openIfID(hint, nsid); opened != nil {
		return opened, nil
	}
	// Many processes share a namespace: try each inode once.
	seen := map[string]bool{}
	processes, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	for _, path := range processes {
		inode, err := os.Readlink(path)
		if err != nil || seen[inode] {
			continue // the process has ended
		}
		seen[inode] = true
		if opened := openIfID(path, nsid); opened != nil {
			return opened, nil
		}
	}
	mounts, err := namespaceMounts()
	if err != nil {
		return nil, err
	}
	for _, path := range mounts {
		if opened := openIfID(path, nsid); opened != nil {
			return opened, nil
		}
	}
	return nil, errNamespaceNotFound
}

// openIfID opens the network namespace at path if it has the given id here, else returns nil.
func openIfID(path string, nsid int) ns.NetNS {
	if path == "" {
		return nil
	}
	opened, err := ns.GetNS(path)
	if err != nil {
		return nil
	}
	if id, err := netlink.GetNetNsIdByFd(int(opened.Fd())); err == nil && id == nsid {
		return opened
	}
	opened.Close()
	return nil
}

// namespaceMounts lists the files that namespaces are bind-mounted on (/run/netns and the like), from /proc/thread-self/mountinfo.
func namespaceMounts() ([]string, error) {
	file, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer file.Close()
	var paths []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if path, ok := namespaceMount(lines.Text()); ok {
			paths = append(paths, path)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return paths, nil
}

// namespaceMount returns the mount point of a mountinfo line if it is a network namespace (proc(5): the root is field 4, the mount
// point field 5, the type the first field after a lone hyphen).
func namespaceMount(line string) (path string, ok bool) {
	mount, source, ok := strings.Cut(line, " - ")
	fields := strings.Fields(mount)
	if !ok || len(fields) < 5 || !strings.HasPrefix(source, "nsfs ") || !strings.HasPrefix(fields[3], "net:") {
		return "", false
	}
	return unescapeMount.Replace(fields[4]), true
}

var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

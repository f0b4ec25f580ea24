package device

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// podEnd is the pod's end of a pair as seen from the host.
type podEnd struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	// MTU in bytes, without the link-layer header.
	MTU int
	Up  bool
}

// readPodEnd reads the pod's end of the pair with this host end, without entering the pod's namespace and without knowing
// its path: it asks for the peer by its index and the kernel's id of its namespace (IFLA_TARGET_NETNSID).
//
// Reading is all that this attribute is good for: with RTM_SETLINK and RTM_NEWLINK the kernel looks the
// index up in the *sender's* namespace and moves that device into the target namespace (tried on 6.18).
func readPodEnd(host netlink.Link) (podEnd, error) {
	attrs := host.Attrs()
	if host.Type() != "veth" || attrs.NetNsID < 0 {
		return podEnd{}, fmt.Errorf("read the pod's end of %s: it is no veth device with the other end in a pod", attrs.Name)
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(attrs.ParentIndex)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(attrs.NetNsID))))
	replies, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return podEnd{}, fmt.Errorf("read the pod's end of %s: %w", attrs.Name, err)
	}
	if len(replies) != 1 {
		return podEnd{}, fmt.Errorf("read the pod's end of %s: %d answers, not 1", attrs.Name, len(replies))
	}
	link, err := netlink.LinkDeserialize(nil, replies[0])
	if err != nil {
		return podEnd{}, fmt.Errorf("parse the pod's end of %s: %w", attrs.Name, err)
	}
	pod := link.Attrs()
	return podEnd{Name: pod.Name, Index: pod.Index, MAC: pod.HardwareAddr, MTU: pod.MTU, Up: pod.Flags&net.FlagUp != 0}, nil
}

// errNamespaceNotFound says that no path leads to a namespace, though the kernel knows it.
var errNamespaceNotFound = errors.New("no process and no mount holds the network namespace")

// openNamespace opens the network namespace to which the kernel gave the id nsid in this one: at the path
// hint, if that is still the one, else wherever a process or a mount of this machine holds it.
func openNamespace(nsid int, hint string) (ns.NetNS, error) {
	if found := openIfID(hint, nsid); found != nil {
		return found, nil
	}
	// Many processes share a namespace: ask once for each, by its inode.
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
		if found := openIfID(path, nsid); found != nil {
			return found, nil
		}
	}
	mounts, err := namespaceMounts()
	if err != nil {
		return nil, err
	}
	for _, path := range mounts {
		if found := openIfID(path, nsid); found != nil {
			return found, nil
		}
	}
	return nil, errNamespaceNotFound
}

// openIfID opens the network namespace at path if it has the given id here; nil for any other.
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

// namespaceMounts lists where namespaces are bound to files (/run/netns and the like), from
// /proc/thread-self/mountinfo.
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

// namespaceMount returns the mount point of a line of mountinfo that is a network namespace (proc(5):
// the root is field 4, the mount point field 5, the type the first field after a lone hyphen).
func namespaceMount(line string) (path string, ok bool) {
	mount, source, ok := strings.Cut(line, " - ")
	fields := strings.Fields(mount)
	if !ok || len(fields) < 5 || !strings.HasPrefix(source, "nsfs ") || !strings.HasPrefix(fields[3], "net:") {
		return "", false
	}
	return unescapeMount.Replace(fields[4]), true
}

var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

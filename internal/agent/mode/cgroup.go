package mode

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// errNoCgroup says why sockets are not connected to backends.
var errNoCgroup = errors.New("cgroup2 is not mounted: what pods and this node send to Services is translated packet by packet; " +
	"mount it (mount -t cgroup2 none /sys/fs/cgroup), or say where it is (--cgroup)")

// FindCgroup gives a cgroup2 directory above all processes of this node: the configured one, or with "auto" the
// highest one that is mounted. In a container that is the node's root, if it is mounted there.
func FindCgroup(path string) (string, error) {
	if path != "auto" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("--cgroup: %w", err)
		}
		return path, nil
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("read mounts: %w", err)
	}
	defer mounts.Close()
	return highestCgroup(mounts)
}

// highestCgroup parses proc_pid_mountinfo(5). The root of a cgroup mount is relative to this process's cgroup
// namespace: "/../.." is above it.
func highestCgroup(mounts io.Reader) (string, error) {
	best, height := "", 0
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		mount, fileSystem, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || !strings.HasPrefix(fileSystem, "cgroup2 ") {
			continue
		}
		root, at := fields[3], fields[4]
		above := strings.Count(root, "..")
		if above == 0 {
			above = 1 - strings.Count(strings.TrimSuffix(root, "/")+"/", "/") // "/" is 0, "/kubepods" is -1
		}
		if best == "" || above > height {
			best, height = at, above
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read mounts: %w", err)
	}
	if best == "" {
		return "", errNoCgroup
	}
	return best, nil
}

package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// errNoCgroup says that sockets cannot be told of Services.
var errNoCgroup = errors.New("cgroup2 is not mounted: what pods and this node send to Services is translated packet by packet; " +
	"mount it (mount -t cgroup2 none /sys/fs/cgroup), or say where it is (--cgroup)")

// findCgroup gives the directory of the cgroup2 file system below which this node's processes are: the one asked for, or with "auto" the
// mounted one that reaches highest. In a container that is the node's, if it is mounted there too.
func findCgroup(asked string) (string, error) {
	if asked != "auto" {
		if _, err := os.Stat(asked); err != nil {
			return "", fmt.Errorf("--cgroup: %w", err)
		}
		return asked, nil
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("read mounts: %w", err)
	}
	defer mounts.Close()
	return highestCgroup(mounts)
}

// highestCgroup reads mounts as proc_pid_mountinfo(5) describes them. The root of a cgroup mount is told as seen from this process's cgroup
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

package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// SysctlChange is one kernel setting that was changed: its path below /proc/sys and its values.
type SysctlChange struct {
	Key, Old, New string
}

// String says what changed, for the log.
func (c SysctlChange) String() string { return c.Key + ": " + c.Old + " -> " + c.New }

// SetSysctl writes value to /proc/sys/<key> (with slashes: "net/ipv4/ip_forward") unless it is already
// there, and returns the change, if any. Keys below net/ belong to the network namespace of the thread
// that opens the file. A setting that this kernel does not have is an error that is fs.ErrNotExist.
func SetSysctl(key, value string) ([]SysctlChange, error) {
	if !filepath.IsLocal(key) {
		return nil, fmt.Errorf("set sysctl %q: the key is not a path below /proc/sys", key)
	}
	path := filepath.Join("/proc/sys", key)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read sysctl %s: %w", key, err)
	}
	old := strings.TrimSpace(string(content))
	if old == value {
		return nil, nil
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return nil, fmt.Errorf("set sysctl %s=%s: %w", key, value, err)
	}
	return []SysctlChange{{Key: key, Old: old, New: value}}, nil
}

// EnableForwarding makes the namespace forward the given families. A router ignores router
// advertisements unless accept_ra is 2, so an uplink that listens to them (accept_ra 1) is set to 2 before
// IPv6 forwarding is switched on. A kernel without IPv6 has none to forward, which is no error. It returns what
// it changed, also when it fails half-way.
func EnableForwarding(uplink string, v4, v6 bool) ([]SysctlChange, error) {
	var changes []SysctlChange
	set := func(key, value string) error {
		changed, err := SetSysctl(key, value)
		changes = append(changes, changed...)
		return err
	}
	if v4 {
		if err := set("net/ipv4/ip_forward", "1"); err != nil {
			return changes, err
		}
	}
	if !v6 || !HasIPv6() {
		return changes, nil
	}
	if hasIPv6(uplink) {
		key := "net/ipv6/conf/" + uplink + "/accept_ra"
		content, err := os.ReadFile(filepath.Join("/proc/sys", key))
		if err != nil {
			return changes, fmt.Errorf("read sysctl %s: %w", key, err)
		}
		if strings.TrimSpace(string(content)) == "1" {
			if err := set(key, "2"); err != nil {
				return changes, err
			}
		}
	}
	return changes, set("net/ipv6/conf/all/forwarding", "1")
}

// AskNeighboursAgain makes the kernel ask all hosts on the uplink's link for a neighbour that no longer answers
// at its link-layer address (mcast_resolicit 1), before it gives the neighbour up. A node that comes back with
// another address, without announcing it (gratuitous ARP), is then found without a moment in which it counts
// as unreachable. It returns what it changed; what the kernel or the device does not have stays as it is.
func AskNeighboursAgain(uplink string) ([]SysctlChange, error) {
	return switchOn("net/ipv4/neigh/"+uplink+"/mcast_resolicit", "net/ipv6/neigh/"+uplink+"/mcast_resolicit")
}

// AnnounceMAC makes the kernel tell all hosts on the uplink's link when the uplink gets another link-layer address
// (arp_notify 1, ndisc_notify 1). Without it others go on sending to the old one until they miss an answer, over
// IPv6 up to 45 s. It returns what it changed; what the kernel or the device does not have stays as it is.
func AnnounceMAC(uplink string) ([]SysctlChange, error) {
	return switchOn("net/ipv4/conf/"+uplink+"/arp_notify", "net/ipv6/conf/"+uplink+"/ndisc_notify")
}

// switchOn sets those of the sysctls that there are to 1.
func switchOn(keys ...string) ([]SysctlChange, error) {
	var changes []SysctlChange
	for _, key := range keys {
		changed, err := SetSysctl(key, "1")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return changes, err
		}
		changes = append(changes, changed...)
	}
	return changes, nil
}

// setting is one sysctl of one device.
type setting struct{ key, value string }

// setDevice writes settings of one family ("ipv4", "ipv6") for one device. A device without IPv6 (the kernel
// has none, or the MTU is below minIPv6MTU) has no IPv6 settings: there is nothing to switch off.
func setDevice(family, name string, settings ...setting) error {
	if family == "ipv6" && !hasIPv6(name) {
		return nil
	}
	for _, s := range settings {
		if _, err := SetSysctl("net/"+family+"/conf/"+name+"/"+s.key, s.value); err != nil {
			return err
		}
	}
	return nil
}

// HasIPv6 tells whether this kernel has IPv6: it may be built or booted (ipv6.disable=1) without.
func HasIPv6() bool { return hasIPv6("all") }

func hasIPv6(device string) bool {
	_, err := os.Stat("/proc/sys/net/ipv6/conf/" + device)
	return err == nil
}

// Package sysctl sets kernel parameters below /proc/sys/net of the calling thread's network namespace.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Change is one parameter that was changed: its path below /proc/sys and its values.
type Change struct {
	Key, Old, New string
}

// String formats the change for the log.
func (c Change) String() string { return c.Key + ": " + c.Old + " -> " + c.New }

// Get reads /proc/sys/<key>, without space around it. For a key that this kernel does not have the error is fs.ErrNotExist.
func Get(key string) (string, error) {
	content, err := os.ReadFile(filepath.Join("/proc/sys", key))
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", key, err)
	}
	return strings.TrimSpace(string(content)), nil
}

// Set writes value to /proc/sys/<key> (with slashes: "net/ipv4/ip_forward") unless it is there already, and returns the change, if
// any. Keys below net/ belong to the network namespace of the thread that opens the file. For a key that this kernel does not have
// the error is fs.ErrNotExist.
func Set(key, value string) ([]Change, error) {
	if !filepath.IsLocal(key) {
		return nil, fmt.Errorf("set sysctl %q: the key is not a path below /proc/sys", key)
	}
	old, err := Get(key)
	if err != nil || old == value {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0); err != nil {
		return nil, fmt.Errorf("set sysctl %s=%s: %w", key, value, err)
	}
	return []Change{{Key: key, Old: old, New: value}}, nil
}

// SetDevice applies settings ("accept_ra=0") of one family ("ipv4", "ipv6") to one device, in order. It does nothing for IPv6 on a
// device without it: the kernel has none, or the MTU is below 1280.
func SetDevice(family, device string, settings ...string) error {
	if family == "ipv6" && !DeviceHasIPv6(device) {
		return nil
	}
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		if _, err := Set("net/"+family+"/conf/"+device+"/"+key, value); err != nil {
			return err
		}
	}
	return nil
}

// EnableForwarding enables forwarding of the given families in the namespace. A router ignores router advertisements unless accept_ra
// is 2, so an uplink with accept_ra 1 is set to 2 before IPv6 forwarding is enabled. IPv6 is skipped on a kernel without it. The
// changes are returned also with an error.
func EnableForwarding(uplink string, v4, v6 bool) ([]Change, error) {
	var changes []Change
	set := func(key, value string) error {
		changed, err := Set(key, value)
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
	if DeviceHasIPv6(uplink) {
		key := "net/ipv6/conf/" + uplink + "/accept_ra"
		old, err := Get(key)
		if err == nil && old == "1" {
			err = set(key, "2")
		}
		if err != nil {
			return changes, err
		}
	}
	return changes, set("net/ipv6/conf/all/forwarding", "1")
}

// EnableMulticastResolicit makes the kernel multicast for a neighbour on the uplink that stops answering at its link-layer address
// (mcast_resolicit 1), before it declares the neighbour failed. A node that returns with another address and does not announce it
// (gratuitous ARP) is found without an outage. Parameters that the kernel or the device does not have are skipped.
func EnableMulticastResolicit(uplink string) ([]Change, error) {
	return enable("net/ipv4/neigh/"+uplink+"/mcast_resolicit", "net/ipv6/neigh/"+uplink+"/mcast_resolicit")
}

// EnableAddressNotify makes the kernel announce a new link-layer address of the uplink on its link (arp_notify 1, ndisc_notify 1).
// Otherwise neighbours send to the old one until a probe fails, over IPv6 for up to 45 s. Parameters that the kernel or the device
// does not have are skipped.
func EnableAddressNotify(uplink string) ([]Change, error) {
	return enable("net/ipv4/conf/"+uplink+"/arp_notify", "net/ipv6/conf/"+uplink+"/ndisc_notify")
}

// EnableProxy lets the kernel answer on the uplink for the addresses of neigh.Proxy: at once (proxy_delay 0; by default it waits up to
// 0.8 s), and for IPv6 at all (proxy_ndp 1). Parameters that the kernel or the device does not have are skipped.
func EnableProxy(uplink string) ([]Change, error) {
	changes, err := enable("net/ipv6/conf/" + uplink + "/proxy_ndp")
	for _, family := range []string{"ipv4", "ipv6"} {
		key := "net/" + family + "/neigh/" + uplink + "/proxy_delay"
		changed, delayErr := Set(key, "0")
		if errors.Is(delayErr, fs.ErrNotExist) {
			continue
		}
		changes, err = append(changes, changed...), errors.Join(err, delayErr)
	}
	return changes, err
}

// enable sets those of the parameters that exist to 1.
func enable(keys ...string) ([]Change, error) {
	var changes []Change
	for _, key := range keys {
		changed, err := Set(key, "1")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return changes, err
		}
		changes = append(changes, changed...)
	}
	return changes, nil
}

// HasIPv6 reports whether this kernel has IPv6: it may be built or booted (ipv6.disable=1) without.
func HasIPv6() bool { return DeviceHasIPv6("all") }

// DeviceHasIPv6 reports whether IPv6 is configured on a device.
func DeviceHasIPv6(device string) bool {
	_, err := os.Stat("/proc/sys/net/ipv6/conf/" + device)
	return err == nil
}

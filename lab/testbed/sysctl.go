package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/file"
	"golang.org/x/sys/unix"
)

// sysctl names are paths below /proc/sys, because device names may hold dots. Those below net/ belong to the
// namespace of the calling thread.

func readSysctl(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join("/proc/sys", name))
	return strings.TrimSpace(string(data)), err
}

func writeSysctl(name, value string) error {
	f, err := os.OpenFile(filepath.Join("/proc/sys", name), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("set sysctl: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("set sysctl %s to %q: %w", name, value, err)
	}
	return nil
}

// setting is one sysctl; lists of them are written in order.
type setting struct{ name, value string }

func writeSysctls(settings []setting) error {
	for _, s := range settings {
		if err := writeSysctl(s.name, s.value); err != nil {
			return err
		}
	}
	return nil
}

// namespaceSysctls are set in every namespace of a lab before it has devices. A namespace inherits some of
// the machine's IPv4 settings; those that matter here are the kernel's defaults again, so that labs are alike
// on all machines. The wire is quiet: no router solicitations, and addresses are usable at once (they are
// unique by plan, so nothing has to be detected).
func namespaceSysctls(o Options, congestion string) []setting {
	settings := []setting{
		{"net/ipv4/ip_forward", "0"},
		{"net/ipv4/conf/all/rp_filter", "0"},
		{"net/ipv4/conf/default/rp_filter", "0"},
		{"net/ipv4/tcp_congestion_control", congestion},
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return settings
	}
	if !o.IPv6 {
		return append(settings,
			setting{"net/ipv6/conf/all/disable_ipv6", "1"},
			setting{"net/ipv6/conf/default/disable_ipv6", "1"})
	}
	return append(settings,
		setting{"net/ipv6/conf/default/accept_dad", "0"},
		setting{"net/ipv6/conf/default/dad_transmits", "0"},
		setting{"net/ipv6/conf/default/accept_ra", "0"},
		setting{"net/ipv6/conf/default/router_solicitations", "0"})
}

// What a lab may have to change in the first network namespace.
const (
	allowedCongestion   = "net/ipv4/tcp_allowed_congestion_control"
	availableCongestion = "net/ipv4/tcp_available_congestion_control"
	wantedCongestion    = "cubic"
	// fallbackCongestion is in every kernel and allowed in every namespace.
	fallbackCongestion = "reno"
)

func firstNamespaceRecord() string { return filepath.Join(runDir, "first-namespace.json") }

// allowCongestionControl returns the congestion control that the namespaces of a lab can have: cubic, which
// the first namespace must list as allowed, else reno. What it changes there is recorded before.
func allowCongestionControl(ctx context.Context) (string, error) {
	unlock, err := lockDir(ctx, runDir, true)
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", runDir, err)
	}
	defer unlock()
	available, err := readSysctl(availableCongestion)
	if err != nil || !slices.Contains(strings.Fields(available), wantedCongestion) {
		return fallbackCongestion, nil
	}
	allowed, err := readSysctl(allowedCongestion)
	if err != nil { // not the first namespace: what it allows cannot be known or changed from here
		return fallbackCongestion, nil
	}
	if slices.Contains(strings.Fields(allowed), wantedCongestion) {
		return wantedCongestion, nil
	}
	if err := recordOriginal(allowedCongestion, allowed); err != nil {
		return "", err
	}
	if err := writeSysctl(allowedCongestion, allowed+" "+wantedCongestion); err != nil {
		return "", err
	}
	return wantedCongestion, nil
}

// recordOriginal keeps the value a sysctl had before the first lab; a value recorded earlier stays.
func recordOriginal(name, value string) error {
	originals := map[string]string{}
	if err := file.ReadJSON(firstNamespaceRecord(), &originals); err != nil && !os.IsNotExist(err) {
		return err
	}
	if _, ok := originals[name]; ok {
		return nil
	}
	originals[name] = value
	return file.WriteJSON(firstNamespaceRecord(), originals)
}

// restoreFirstNamespace undoes what labs changed there, unless a lab is left.
func restoreFirstNamespace(ctx context.Context) error {
	unlock, err := lockDir(ctx, runDir, true)
	if err != nil {
		return fmt.Errorf("lock %s: %w", runDir, err)
	}
	defer unlock()
	labs, err := recordedLabs()
	if err != nil || len(labs) > 0 {
		return err
	}
	originals := map[string]string{}
	err = file.ReadJSON(firstNamespaceRecord(), &originals)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for name, value := range originals {
		if err := writeSysctl(name, value); err != nil {
			return err
		}
	}
	for _, path := range []string{firstNamespaceRecord(), firstNamespaceRecord() + ".next"} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	// Not empty when a new lab begins just now: it finds the lock held and looks at the sysctls after this.
	if err := os.Remove(runDir); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// recordedLabs are the labs that have a directory, sorted.
func recordedLabs() ([]string, error) {
	entries, err := os.ReadDir(runDir)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var labs []string
	for _, e := range entries {
		if e.IsDir() && labName.MatchString(e.Name()) {
			labs = append(labs, e.Name())
		}
	}
	return labs, nil
}

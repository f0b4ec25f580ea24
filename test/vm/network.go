package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/lab/kubebuild"
	"github.com/beeline-cni/beeline/lab/network"
)

// The bench's networks are tested on the machine itself, but for kube-proxy in mode ipvs: many a kernel has no IPVS, and
// Debian's have it as a module. One of them is enough: see kernel.network.
const (
	networkDir      = "lab/network"
	networkTest     = "TestProxies"
	networkSubtests = "/^kube-proxy-ipvs$"
)

// networkPrograms are those of this machine that the lab, kube-proxy and the pods of that network need. busybox has an ip,
// too, without namespaces and batches.
var networkPrograms = []string{
	"ip", "iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore",
	"/usr/lib/cni/ptp", "/usr/lib/cni/host-local",
}

// networkPackages have what this machine need not have installed.
var networkPackages = []string{"ipset", "libipset13"}

// protocols is what ipset knows protocols' names by.
const protocols = "icmp 1\ntcp 6\nudp 17\nipv6-icmp 58\nsctp 132\n"

// fillNetwork puts what those tests call below root: the programs, what iptables loads, ipset, and kube-proxy where the
// tests look for it, as they built it.
func fillNetwork(ctx context.Context, s store, root string) error {
	for _, name := range networkPrograms {
		if err := copyProgram(ctx, root, name); err != nil {
			return err
		}
	}
	for _, pkg := range networkPackages {
		tree, err := s.get(ctx, pkg, debian{name: pkg}, func(string) error { return nil })
		if err != nil {
			return err
		}
		if _, err := output(ctx, "", "cp", "-r", tree+"/.", root); err != nil {
			return err
		}
	}
	if err := fillXtables(ctx, root); err != nil {
		return err
	}
	return fillKubeProxy(ctx, root)
}

// fillXtables puts below root what iptables loads, and the names of protocols.
func fillXtables(ctx context.Context, root string) error {
	const script = `
		extensions=$(echo /usr/lib/*/xtables)
		mkdir -p "$1${extensions%/*}" "$1/etc"
		cp -r "$extensions" "$1${extensions%/*}"
		printf %s "$2" >"$1/etc/protocols"`
	_, err := output(ctx, "", "sh", "-euc", script, "sh", root, protocols)
	return err
}

// fillKubeProxy copies kube-proxy and the recipe that it was built by from this machine's cache to the guest's.
func fillKubeProxy(ctx context.Context, root string) error {
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, "vm: "+format+"\n", args...) }
	if err := network.BuildKubeProxy(ctx, say); err != nil {
		return err
	}
	cache, err := kubebuild.OpenCache()
	if err != nil {
		return err
	}
	from := cache.Dir(kubebuild.Version)
	for _, part := range []string{"bin", "recipes"} {
		into := filepath.Join(root, "root/.cache/beeline-kubernetes", filepath.Base(from), part)
		if err := os.MkdirAll(into, 0o755); err != nil {
			return err
		}
		if err := file.Copy(filepath.Join(into, "kube-proxy"), filepath.Join(from, part, "kube-proxy"), 0o755); err != nil {
			return err
		}
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// prepare sets up the node: a BPF file system, and an uplink with the address of node 0 to a wire where all other
// nodes reply.
func prepare(ctx context.Context, dir string) error {
	bpf := filepath.Join(dir, "bpf")
	for _, command := range []string{
		"mount --make-rprivate /",
		"mount -t proc proc /proc",
		// Pods' network namespaces have names in /run, which hides those of the host.
		"mount -t tmpfs run /run",
		"mkdir " + bpf,
		"mount -t bpf bpf " + bpf,
		"ip link set lo up",
		"ip netns add others",
		"ip link add uplink type veth peer name wire netns others",
		"ip address add " + nodeAddress(0).String() + "/" + fmt.Sprint(link) + " dev uplink",
		"ip link set uplink up",
		"ip -n others link set lo up",
		"ip -n others link set wire up",
		// The kernel replies for all its own addresses.
		"ip -n others route add local 10.200.0.0/16 dev lo",
	} {
		words := strings.Fields(command)
		if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
	}
	return nil
}

package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/lab/topology"
)

// A pod whose program for what the host's stack sends to it cannot be attached, here since nothing can be pinned, gets nothing that the
// stack forwards. What needs no such program goes on, its node reaches it, and the agent says so until it can attach the program.
func TestPolicyWithoutProgram(t *testing.T) {
	t.Parallel()
	g := newStranded(t)
	heard, err := datagrams(g.pod.place, g.pod.addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer heard.socket.Close()
	isHeard := func(from worldEnd) bool {
		t.Helper()
		count := heard.from(from.addresses[0])
		before := count.Load()
		sendByStack(t, from.place, g.pod.addresses[0])
		time.Sleep(50 * time.Millisecond)
		return count.Load() > before
	}
	eventuallyHeard := func(from worldEnd) {
		t.Helper()
		eventually(t, func() error {
			if !isHeard(from) {
				return fmt.Errorf("%s is not heard", from.name)
			}
			return nil
		})
	}
	added := g.addPod(g.here, "stranger")
	stranger := worldEnd{"stranger", g.lab.Place(added), added.Addresses}
	// By another policy, since the first one allows TCP only.
	g.policy("udp", fmt.Sprintf("{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: %d, protocol: UDP}]}]}", backendPort))
	eventuallyHeard(g.near)
	if isHeard(stranger) {
		t.Error("a pod that no policy allows is heard through the stack")
	}

	g.kill(g.here)
	pins, err := filepath.Glob(filepath.Join(g.here.BPFFS, "links", "bl* to_pod"))
	if err != nil || len(pins) == 0 {
		t.Fatalf("programs to_pod are at %q (%v)", pins, err)
	}
	for _, pin := range pins {
		if err := os.Remove(pin); err != nil {
			t.Fatal(err)
		}
	}
	readOnly := func(flag uintptr) {
		t.Helper()
		if err := unix.Mount("", g.here.BPFFS, "", unix.MS_REMOUNT|unix.MS_BIND|flag, ""); err != nil {
			t.Fatal(err)
		}
	}
	readOnly(unix.MS_RDONLY)
	defer readOnly(0)
	g.start(g.here, current(t))
	g.waitReady(g.here)
	g.waitProblem(g.here, "NetworkPolicy default/web: pod default/pod is closed for what the host's stack forwards to it", "read-only")
	for _, from := range []worldEnd{g.near, stranger} {
		if isHeard(from) {
			t.Errorf("%s is heard through the stack", from.name)
		}
	}
	g.expectAdmitted()
	g.expectPorts(g.node, g.pod, backendPort, otherPort)
	g.expectPorts(g.pod, g.far, backendPort, otherPort)
	g.waitStatus(g.here, func(s *api.Status) error {
		if s.Policy.Closed != 2 || s.Policy.ClosedPods != 1 {
			return fmt.Errorf("policies %+v", s.Policy)
		}
		return nil
	})

	readOnly(0)
	g.waitNoProblem(g.here)
	eventuallyHeard(g.near)
	if isHeard(stranger) {
		t.Error("a pod that no policy allows is heard through the stack when the program is back")
	}
	g.expectAdmitted()
}

// sendByStack sends a datagram with an option, which programs leave to the stack: no operations (RFC 791, 3.1).
func sendByStack(t *testing.T, from topology.Place, to netip.Addr) {
	t.Helper()
	err := from.Do(func() error {
		socket, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, backendPort)))
		if err != nil {
			return err
		}
		defer socket.Close()
		raw, err := socket.SyscallConn()
		if err != nil {
			return err
		}
		var optionErr error
		if err := raw.Control(func(fd uintptr) {
			optionErr = unix.SetsockoptString(int(fd), unix.IPPROTO_IP, unix.IP_OPTIONS, "\x01\x01\x01\x01")
		}); err != nil {
			return err
		}
		if optionErr != nil {
			return optionErr
		}
		_, err = socket.Write([]byte("by the stack"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// A pod whose program to_pod cannot be attached, here because pins are read-only, gets no packet that the kernel stack
// forwards. Other traffic continues, its node reaches it, and the agent reports a problem until it attaches the program.
func TestPolicyWithoutProgram(t *testing.T) {
	t.Parallel()
	g := newAdmitted(t)
	received, err := datagrams(g.pod.netns, g.pod.addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer received.socket.Close()
	isReceived := func(from machine) bool {
		t.Helper()
		count := received.from(from.addresses[0])
		before := count.Load()
		sendByStack(t, from.netns, g.pod.addresses[0])
		time.Sleep(50 * time.Millisecond)
		return count.Load() > before
	}
	eventuallyReceived := func(from machine) {
		t.Helper()
		eventually(t, func() error {
			if !isReceived(from) {
				return fmt.Errorf("nothing arrives from %s", from.name)
			}
			return nil
		})
	}
	added := g.addPod(g.here, "stranger")
	stranger := machine{"stranger", added.Netns, added.Addresses}
	// By another policy, since the first one allows TCP only.
	g.policy("udp", fmt.Sprintf("{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: %d, protocol: UDP}]}]}", backendPort))
	eventuallyReceived(g.near)
	if isReceived(stranger) {
		t.Error("a datagram of a pod that no policy allows arrives through the kernel stack")
	}

	g.kill(g.here)
	pins, err := filepath.Glob(filepath.Join(g.here.BPFFS, "links", "bl* to_pod"))
	if err != nil || len(pins) == 0 {
		t.Fatalf("pins of to_pod are %q (%v)", pins, err)
	}
	for _, pin := range pins {
		if err := os.Remove(pin); err != nil {
			t.Fatal(err)
		}
	}
	g.keepPins(true)
	defer g.keepPins(false)
	g.start(g.here, current(t))
	g.waitReady(g.here)
	g.waitProblem(g.here, "NetworkPolicy default/web: pod default/pod is closed for what the host's stack forwards to it", "read-only")
	for _, from := range []machine{g.near, stranger} {
		if isReceived(from) {
			t.Errorf("a datagram of %s arrives through the kernel stack", from.name)
		}
	}
	g.expectAdmitted()
	g.expectPorts(g.node, g.pod, backendPort, otherPort)
	g.expectPorts(g.pod, g.far, backendPort, otherPort)
	g.waitStatus(g.here, func(s *agentapi.Status) error {
		if s.Policy.Closed != 2 || s.Policy.ClosedPods != 1 {
			return fmt.Errorf("policies %+v", s.Policy)
		}
		return nil
	})

	g.keepPins(false)
	g.waitNoProblem(g.here)
	eventuallyReceived(g.near)
	if isReceived(stranger) {
		t.Error("a datagram of a pod that no policy allows arrives through the kernel stack after the program is attached")
	}
	g.expectAdmitted()
}

// A pod whose program from_pod is gone and cannot be attached, here because pins are read-only, can send to its own node
// only, with any source address, also over a restart of the agent. Other pods are not affected, a deleted pod leaves no
// routing rule, and the agent reports a problem until it attaches the program.
func TestPolicyWithoutProgramForEgress(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t)
	serveName(t, g.node, backendPort)
	serveName(t, g.node, otherPort)
	received, err := datagrams(g.outside.netns, g.outside.addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer received.socket.Close()
	ending := g.addPod(g.here, "ending")
	g.policy("egress", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: client}}}]}]}")
	g.expectPorts(g.pod, g.far, backendPort, otherPort)
	g.expectPorts(g.pod, g.outside)
	sendTo(t, g.pod.netns, g.outside.addresses[0])
	fromPod := received.from(g.pod.addresses[0]) // its own address: packets through the kernel stack are not masqueraded
	if n := fromPod.Load(); n > 0 {
		t.Errorf("%d datagrams of the pod arrive at the external machine, which no policy allows", n)
	}

	g.kill(g.here)
	var devices []string
	for pod, programs := range map[string][]string{"pod": {"from_pod"}, "ending": {"from_pod", "to_pod"}} {
		device := g.hostDevice(pod)
		devices = append(devices, device)
		for _, program := range programs {
			if err := os.Remove(filepath.Join(g.here.BPFFS, "links", device+" "+program)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	eventually(t, func() error {
		if fromPod.Load() == 0 {
			return errors.New("nothing arrives from the pod without its program")
		}
		return nil
	})
	g.keepPins(true)
	defer g.keepPins(false)
	waitDenied := func() {
		t.Helper()
		g.waitProblem(g.here, "NetworkPolicy default/egress: each of 2 pods is closed for what it sends to others than its node", "read-only")
	}
	g.start(g.here, current(t))
	waitDenied()
	before := int64(-1)
	marks := received.from(g.node.addresses[0])
	eventually(t, func() error { // earlier datagrams arrive before the node's mark
		last, marked := before, marks.Load()
		if err := sendAs(g.node.netns, netip.Addr{}, netip.AddrPortFrom(g.outside.addresses[0], backendPort), []byte("mark"), 1); err != nil {
			return err
		}
		eventually(t, func() error {
			if marks.Load() == marked {
				return errors.New("nothing arrives from the node")
			}
			return nil
		})
		if before = fromPod.Load(); before != last {
			return fmt.Errorf("%d datagrams of the pod arrived at the external machine, then %d", last, before)
		}
		return nil
	})
	for _, to := range []machine{g.near, g.far, g.outside} {
		g.expectPorts(g.pod, to)
	}
	g.expectPorts(g.pod, g.node, backendPort, otherPort)
	g.expectPorts(g.node, g.pod, backendPort, otherPort)
	g.expectPorts(g.near, g.far, backendPort, otherPort)
	g.expectPorts(g.far, g.near, backendPort, otherPort)
	stranger := netip.MustParseAddr("198.51.100.7")
	for _, source := range []netip.Addr{g.near.addresses[0], stranger} {
		if err := sendAs(g.pod.netns, source, netip.AddrPortFrom(g.outside.addresses[0], backendPort), []byte("forged"), 3); err != nil {
			t.Fatal(err)
		}
	}
	g.waitStatus(g.here, func(s *agentapi.Status) error {
		if !s.Ready || s.Policy.Closed != 1 || s.Policy.ClosedPods != 2 {
			return fmt.Errorf("ready %t, policies %+v", s.Ready, s.Policy)
		}
		return nil
	})
	g.kill(g.here)
	g.start(g.here, current(t))
	waitDenied()
	if n := fromPod.Load() - before; n > 0 {
		t.Errorf("%d datagrams of the pod arrive at the external machine", n)
	}
	for _, source := range []netip.Addr{g.near.addresses[0], stranger} {
		if n := received.from(source).Load(); n > 0 {
			t.Errorf("%d datagrams of the pod with source %s arrive at the external machine", n, source)
		}
	}
	g.waitRulesFor(devices...)
	g.delPod(g.here, ending)
	g.waitRulesFor(g.hostDevice("pod"))

	g.keepPins(false)
	g.waitReady(g.here)
	g.waitNoProblem(g.here)
	g.waitRulesFor()
	g.expectPorts(g.pod, g.far, backendPort, otherPort)
	g.expectPorts(g.pod, g.outside)
}

// A pod without from_pod that no policy selects cannot send as a pod that policies of others allow, also before the agent knows the
// policies.
func TestForgedSourceWithoutProgram(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t)
	g.labels["far"] = "server"
	g.writePods()
	g.policy("server", "{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}")
	g.expectPorts(g.near, g.far, backendPort, otherPort)
	g.expectPorts(g.pod, g.far)
	received, err := datagrams(g.far.netns, g.far.addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer received.socket.Close()
	forged := received.from(g.near.addresses[0])
	forge := func() {
		t.Helper()
		if err := sendAs(g.pod.netns, g.near.addresses[0], netip.AddrPortFrom(g.far.addresses[0], backendPort), []byte("forged"), 3); err != nil {
			t.Fatal(err)
		}
	}

	g.kill(g.here)
	device := g.hostDevice("pod")
	if err := os.Remove(filepath.Join(g.here.BPFFS, "links", device+" from_pod")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		forge()
		if forged.Load() == 0 {
			return errors.New("no forged datagram arrives from the pod without its program")
		}
		return nil
	})
	g.keepPins(true)
	defer g.keepPins(false)
	g.start(g.here, current(t))
	g.waitProblem(g.here, "pod default/pod is closed for what it sends to others than its node", "read-only")
	g.waitRulesFor(device)
	g.expectPorts(g.near, g.far, backendPort, otherPort) // earlier datagrams have arrived
	before := forged.Load()
	for range 10 {
		forge()
	}
	g.expectPorts(g.near, g.far, backendPort, otherPort)
	if n := forged.Load() - before; n > 0 {
		t.Errorf("%d datagrams with the source of another pod arrive", n)
	}
	g.keepPins(false)
	g.waitReady(g.here)
	g.waitNoProblem(g.here)
	g.waitRulesFor()
	g.expectPorts(g.pod, g.outside, backendPort, otherPort)
}

// hostDevice returns the host device of a pod of here, from its endpoint file.
func (g *policyLab) hostDevice(pod string) string {
	g.t.Helper()
	files, err := filepath.Glob(filepath.Join(g.here.stateDir(), "endpoints", "*.json"))
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			g.t.Fatal(err)
		}
		var e agentapi.Endpoint
		if err := json.Unmarshal(text, &e); err != nil {
			g.t.Fatal(err)
		}
		if e.Pod.Name == pod {
			return e.HostDevice
		}
	}
	g.t.Fatalf("none of %d endpoint files is of %s", len(files), pod)
	return ""
}

// keepPins makes the BPF file system of here read-only, or writable again.
func (g *policyLab) keepPins(keep bool) {
	g.t.Helper()
	var flag uintptr
	if keep {
		flag = unix.MS_RDONLY
	}
	if err := unix.Mount("", g.here.BPFFS, "", unix.MS_REMOUNT|unix.MS_BIND|flag, ""); err != nil {
		g.t.Fatal(err)
	}
}

// waitRulesFor waits until here has the routing rules that stop forwarding from exactly these devices.
func (g *policyLab) waitRulesFor(devices ...string) {
	g.t.Helper()
	want := []string{}
	for _, d := range devices {
		want = append(want, d, d) // one of each family
	}
	slices.Sort(want)
	eventually(g.t, func() error {
		got := []string{}
		err := g.node.netns.Netlink(func(h *netlink.Handle) error {
			for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
				rules, err := complete(func() ([]netlink.Rule, error) { return h.RuleList(family) })
				if err != nil {
					return err
				}
				for _, r := range rules {
					if r.Priority == 189 {
						got = append(got, r.IifName)
					}
				}
			}
			return nil
		})
		slices.Sort(got)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("rules for devices %q, want %q", got, want)
		}
		return err
	})
}

// sendByStack sends a datagram with an IP option, which programs pass to the kernel stack: no operation (RFC 791, 3.1).
func sendByStack(t *testing.T, from testbed.Netns, to netip.Addr) {
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

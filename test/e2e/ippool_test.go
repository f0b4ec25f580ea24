package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/conflict"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
)

// poolOf is the manifest of an IPPool in the subnets of a node's addresses, which all pods use: the addresses that end from
// first to last in each. Groups of IPv6 addresses are hexadecimal, so both have three digits below 256. The pods have this kind of device.
func poolOf(name string, n *node, device string, first, last int) []byte {
	var subnets, ranges []string
	for _, p := range n.Addresses {
		prefix, _, _ := strings.Cut(p.Addr().String()+"\n", "\n")
		cut := strings.LastIndexAny(prefix, ".:") + 1
		subnets = append(subnets, fmt.Sprintf("%q", p.Masked()))
		ranges = append(ranges, fmt.Sprintf("\"%[1]s%[2]d-%[1]s%[3]d\"", prefix[:cut], first, last))
	}
	return fmt.Appendf(nil, "apiVersion: networking.beeline.dev/v1alpha1\nkind: IPPool\nmetadata: {name: %s}\nspec:\n  subnets: [%s]\n  ranges: [%s]\n  default: true\n  device: %s\n",
		name, strings.Join(subnets, ", "), strings.Join(ranges, ", "), device)
}

// addPoolPod makes pods until one has addresses of the pool: the agent may not have read it yet.
func (w *external) addPoolPod(name string) machine {
	w.t.Helper()
	var pod *testbed.Pod
	for try := 0; pod == nil; try++ {
		p := w.addPod(w.here, fmt.Sprintf("%s-%d", name, try))
		if w.here.Addresses[0].Masked().Contains(p.Addresses[0]) {
			pod = p
		} else if try > 30 {
			w.t.Fatalf("pod %s has addresses %v, none of an IPPool in %s", name, p.Addresses, w.here.Addresses[0].Masked())
		}
	}
	return machine{name, pod.Netns, pod.Addresses}
}

// A pod with addresses of the nodes' own network is a host of that network: its node answers for it, and nothing translates its address.
func TestRoutedUnderlay(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) { testUnderlay(t, testenv.DeviceKind(), "--routing", routing) })
	}
}

// So is one with a macvlan device, which answers itself.
func TestMacvlan(t *testing.T) {
	t.Parallel()
	w, pod := testUnderlay(t, string(device.Macvlan))
	// Without programs at its parent the device would be open.
	if err := w.terminate(w.here); err != nil {
		t.Error(err)
	}
	p := current(t)
	args := append([]string{"uninstall", "--force", "--state-dir", w.here.stateDir(), "--bpffs", w.here.BPFFS}, newHost(t, p).flags()...)
	if output, err := w.here.Output(t.Context(), p.Agent(), args...); err != nil || !strings.Contains(string(output), "macvlan device eth0 in pod") {
		t.Errorf("uninstall: %s, %v", output, err)
	}
	err := pod.netns.Netlink(func(h *netlink.Handle) error {
		_, err := h.LinkByName("eth0")
		return err
	})
	if !errors.As(err, &netlink.LinkNotFoundError{}) {
		t.Errorf("the pod has its device after the programs are gone: %v", err)
	}
}

// testUnderlay connects pods of a pool with all others, and restarts the agent.
func testUnderlay(t *testing.T, device string, flags ...string) (w *external, pod machine) {
	w = newExternal(t, flags...)
	t.Cleanup(func() {
		if drops, err := w.here.api().Drops(context.Background()); t.Failed() {
			t.Logf("drops: %+v, %v", drops, err)
		}
	})
	w.writeManifest("ippool.yaml", poolOf("office", w.here, device, 200, 209))
	pool := w.addPoolPod("pool")
	for _, other := range []machine{w.outside, w.peer, w.node, w.pod} {
		w.expect(pool, other, pool)
		w.expect(other, pool, other)
	}
	w.expect(pool, w.far, pool)
	second := w.addPoolPod("second")
	endpoints, err := w.here.api().Endpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range endpoints {
		if slices.Contains(second.addresses, p.Addresses[0]) && p.Device != device {
			t.Errorf("the device of a pod of the pool is %q, want %q", p.Device, device)
		}
	}
	w.expect(pool, second, pool)
	w.expect(second, pool, second)
	w.expect(w.pod, w.outside, w.node)
	w.expectDefence(pool)
	for i := range w.outside.addresses {
		w.expectRejection(pool, w.outside, i)
		w.expectRejection(w.outside, pool, i)
		w.expectFragments(pool, w.outside, i)
		w.expectFragments(w.outside, pool, i)
	}
	if n := w.masqueradeDrops(w.here); n > 0 {
		t.Errorf("%d packets dropped as no_masquerade_address", n)
	}
	// The addresses survive a restart of the agent.
	w.kill(w.here)
	w.expect(w.outside, pool, w.outside)
	w.start(w.here, current(t), flags...)
	w.waitReady(w.here)
	w.expect(pool, w.outside, pool)
	w.expect(w.outside, pool, w.outside)
	return w, pool
}

// A pod never gets an address that another machine of the network has.
func TestConflictingAddresses(t *testing.T) {
	t.Parallel()
	w := newExternal(t)
	theirs := map[netip.Addr]bool{}
	err := w.outside.netns.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(testbed.Uplink)
		if err != nil {
			return err
		}
		for _, own := range w.here.Addresses {
			for _, end := range []int{210, 211} {
				text := own.Addr().String()
				a := netip.MustParseAddr(fmt.Sprint(text[:strings.LastIndexAny(text, ".:")+1], end))
				theirs[a] = true
				if err := h.AddrAdd(link, &netlink.Addr{IPNet: testbed.IPNet(netip.PrefixFrom(a, own.Bits())), Flags: unix.IFA_F_NODAD}); err != nil {
					return fmt.Errorf("add address %s: %w", a, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.writeManifest("ippool.yaml", poolOf("office", w.here, testenv.DeviceKind(), 210, 212))
	pool := w.addPoolPod("pool")
	for _, a := range pool.addresses {
		if theirs[a] {
			t.Errorf("the pod has address %s of another machine", a)
		}
	}
	w.expect(w.peer, pool, w.peer)
	w.expect(pool, w.outside, pool)
}

// expectDefence: a host of the link that looks whether a pod's address is free finds it in use.
func (w *external) expectDefence(pod machine) {
	w.t.Helper()
	for _, a := range pod.addresses {
		err := w.outside.netns.Do(func() error {
			link, err := netlink.LinkByName(testbed.Uplink)
			if err != nil {
				return err
			}
			return conflict.Probe(w.t.Context(), conflict.Device{Index: link.Attrs().Index, MAC: link.Attrs().HardwareAddr}, a)
		})
		if inUse := (*conflict.InUseError)(nil); !errors.As(err, &inUse) {
			w.t.Errorf("another host probes %s, an address of %s: %v, want that it is in use", a, pod.name, err)
		}
	}
}

// A pod gets a second interface with an address of the IPPool that the network names, as Multus adds it.
func TestSecondInterfaceOfPool(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{testenv.DeviceKind(), string(device.Macvlan)} {
		t.Run(kind, func(t *testing.T) { testSecondInterfaceOfPool(t, kind) })
	}
}

func testSecondInterfaceOfPool(t *testing.T, kind string) {
	w := newExternal(t)
	w.writeManifest("ippool.yaml", bytes.Replace(poolOf("office", w.here, kind, 220, 229), []byte("default: true"), []byte("default: false"), 1))
	pod := w.addPod(w.here, "double")
	first := machine{"eth0", pod.Netns, pod.Addresses}
	own := pluginConf(w.here)
	own["ipPool"] = "office"
	office := w.networkOf(w.here, current(t), "1.1.0", own)
	conf := runtimeConf(pod)
	conf.IfName = "net1"
	eventually(t, func() error { // the agent may not have read the pool yet
		_, err := office.add(t.Context(), pod, conf)
		return err
	})
	second := machine{"net1", pod.Netns, pod.Addresses}
	if !w.here.Addresses[0].Masked().Contains(second.addresses[0]) {
		t.Fatalf("net1 has %v", second.addresses)
	}
	w.expect(second, w.outside, second)
	w.expect(w.outside, second, w.outside)
	w.expect(w.pod, second, w.pod)
	w.expect(w.pod, first, w.pod)
	w.expect(w.outside, first, w.outside)
	w.expect(first, w.far, first)
	w.expect(w.node, second, w.node)
	if err := office.CNI.CheckNetworkList(t.Context(), office.List, conf); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := office.del(t.Context(), conf); err != nil {
		t.Fatal(err)
	}
	if all, err := w.here.api().Endpoints(t.Context()); err != nil || slices.ContainsFunc(all, func(e agentapi.Endpoint) bool { return e.IfName == "net1" }) {
		t.Errorf("after DEL of net1: %+v, %v", all, err)
	}
	w.expect(w.pod, first, w.pod)
	w.expect(first, w.far, first)
}

// Pods of an IPPool are clients and backends of Services of all kinds, at sockets and packet by packet.
func TestServicesOfPoolPods(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{testenv.DeviceKind(), string(device.Macvlan)} {
		t.Run(kind, func(t *testing.T) { testServicesOfPoolPods(t, kind) })
	}
}

// fetchOutside sends a request over TCP from a process of the test, which is outside of the pods' cgroups: no program at its sockets
// translates. It returns the reply.
func fetchOutside(from machine, to netip.AddrPort) (string, error) {
	var reply string
	err := from.netns.Do(func() error {
		conn, err := net.DialTimeout("tcp", to.String(), patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte(capture.Marker + "\n")); err != nil {
			return err
		}
		buffer := make([]byte, 64)
		n, err := conn.Read(buffer)
		reply = nameOf(string(buffer[:n]))
		return err
	})
	return reply, err
}

func testServicesOfPoolPods(t *testing.T, kind string) {
	b := newServiceLab(t)
	b.writeManifest("ippool.yaml", poolOf("office", b.here, kind, 230, 239))
	pool, second := b.addPoolPod("pool"), b.addPoolPod("second")
	hostNetwork := machine{"host network", b.node.netns, b.node.addresses}
	for _, backend := range []machine{pool, b.far, b.pod, hostNetwork} {
		serveName(t, backend, backendPort)
		b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, "", backend))
		for _, a := range serviceOfFar {
			to := netip.AddrPortFrom(a, servicePort)
			for _, client := range []machine{pool, second, b.pod, b.node} {
				b.expectReply(client, to, backend)
			}
		}
	}
	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, "", b.far))
	for _, a := range serviceOfFar {
		b.expectReply(second, netip.AddrPortFrom(a, servicePort), b.far)
	}
	expectOutside := func(from machine, to netip.AddrPort, want machine) {
		t.Helper()
		if got, err := fetchOutside(from, to); err != nil || got != want.name {
			t.Errorf("%s to %s: reply of %q, %v; want %s", from.name, to, got, err, want.name)
		}
	}
	for _, a := range serviceOfFar {
		expectOutside(pool, netip.AddrPortFrom(a, servicePort), b.far)
	}
	// From outside, through NodePorts of both policies.
	for _, policy := range []string{"Cluster", "Local"} {
		more := fmt.Sprintf("  type: NodePort\n  externalTrafficPolicy: %s\n", policy)
		yaml := nodePorts(serviceYAML("web", serviceOfFar, more, second), nodePort)
		yaml = bytes.ReplaceAll(yaml, []byte("conditions: {ready: true}"), []byte("nodeName: "+b.here.Name+", conditions: {ready: true}"))
		if policy == "Cluster" {
			serveName(t, second, backendPort)
		}
		b.writeManifest("service.yaml", yaml)
		for _, a := range b.node.addresses {
			to := netip.AddrPortFrom(a, nodePort)
			eventually(t, func() error {
				if got, err := fetchOutside(b.outside, to); err != nil || got != second.name {
					return fmt.Errorf("policy %s, external to %s: reply of %q, %w", policy, to, got, err)
				}
				return nil
			})
			b.expectReply(pool, to, second)
		}
	}
	b.wantNoDropsOn(b.nodes[:1])
}

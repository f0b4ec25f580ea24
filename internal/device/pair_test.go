package device

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
	"github.com/beeline-cni/beeline/internal/testenv"
)

var (
	kind = Kind(testenv.DeviceKind())

	pod4     = netip.MustParsePrefix("10.1.0.5/32")
	pod6     = netip.MustParsePrefix("fd00:1::5/128")
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fe80::1")
)

func TestHostName(t *testing.T) {
	name := HostName("c0ffee", "eth0")
	if len(name) != 15 || !strings.HasPrefix(name, HostPrefix) {
		t.Errorf("%q is not %s and 13 digits", name, HostPrefix)
	}
	if HostName("c0ffee", "eth0") != name {
		t.Error("the name differs the second time")
	}
	if HostName("c0ffee", "eth1") == name || HostName("decaf", "eth0") == name {
		t.Error("two interfaces have one name")
	}
}

func TestPodMACs(t *testing.T) {
	seen := map[string]bool{}
	for i := range 1000 {
		host, pod := podMACs(fmt.Sprint(i), "eth0")
		for _, mac := range []net.HardwareAddr{host, pod} {
			if mac[0]&0x03 != 0x02 {
				t.Fatalf("%s is not locally administered and unicast", mac)
			}
			if seen[mac.String()] {
				t.Fatalf("%s twice", mac)
			}
			seen[mac.String()] = true
		}
	}
}

// newPod makes a configured pod on node, as the plugin and the agent do together.
func newPod(t *testing.T, node, pod ns.NetNS, container string, addresses ...netip.Prefix) (PodDevice, PodConfig) {
	t.Helper()
	var pair PodDevice
	cfg := PodConfig{MTU: 1400, Addresses: addresses}
	devicetest.Inside(t, node, func() (err error) {
		if pair, err = Pods.Create(PodSpec{Kind: kind, ContainerID: container, IfName: "eth0", Netns: pod.Path(), MTU: cfg.MTU}); err != nil {
			return err
		}
		if err := Pods.Open(pair.HostIndex); err != nil {
			return err
		}
		cfg.HostMAC = pair.HostMAC
		for _, address := range addresses {
			gateway := gateway6
			if address.Addr().Is4() {
				gateway = gateway4
			}
			cfg.Gateways = append(cfg.Gateways, gateway)
			if err := neigh.SetPermanent(pair.HostIndex, address.Addr(), pair.PodMAC); err != nil {
				return err
			}
			if err := route.Add(route.Route{Prefix: address, Device: pair.HostIndex}); err != nil {
				return err
			}
		}
		return Pods.Configure(pod.Path(), "eth0", cfg)
	})
	return pair, cfg
}

func TestPodReachesNodeAtOnce(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	pair, cfg := newPod(t, node, pod, "a", pod4, pod6)
	devicetest.Inside(t, node, func() error {
		if err := Pods.Check(pod.Path(), "eth0", cfg); err != nil {
			return err
		}
		if err := exchange(t, pod, pair); err != nil {
			return err
		}
		if _, ok := Pods.PacketsFrom(HostName("absent", "eth0")); ok {
			t.Error("a device that is not there has packets")
		}
		link, err := netlink.LinkByIndex(pair.HostIndex)
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(link, unix.AF_UNSPEC)
		if err != nil {
			return err
		}
		if len(addresses) != 0 {
			t.Errorf("the host end has addresses: %v", addresses)
		}
		hosts, err := Pods.HostEnds()
		if err != nil {
			return err
		}
		if len(hosts) != 1 || hosts[0].Name != pair.HostName || hosts[0].PodIndex != pair.PodIndex {
			t.Errorf("host devices %+v, the pair is %+v", hosts, pair)
		}
		end, err := peerOf(pair.HostIndex)
		if err != nil {
			return err
		}
		if end.Name != "eth0" || end.Index != pair.PodIndex || end.HardwareAddr.String() != pair.PodMAC.String() || end.Flags&net.FlagUp == 0 || end.MTU != cfg.MTU {
			t.Errorf("the pod's end is %+v, the pair %+v", end, pair)
		}
		return nil
	})
}

// exchange shows that the pod exchanges packets with its node, and that they are counted. A netkit pod sends nothing before it has a
// program.
func exchange(t *testing.T, pod ns.NetNS, pair PodDevice) error {
	if kind == Netkit {
		if err := echo(pod, "192.0.2.1", 300*time.Millisecond); err == nil {
			t.Error("a netkit pod without a program has sent packets")
		}
		return nil
	}
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		if err := echo(pod, address, 5*time.Second); err != nil {
			return fmt.Errorf("pod to %s: %w", address, err)
		}
	}
	sent, ok := Pods.PacketsFrom(pair.HostName)
	if !ok || sent == 0 {
		t.Errorf("the pod has sent %d packets, known: %v", sent, ok)
	}
	if err := echo(pod, "192.0.2.1", 5*time.Second); err != nil {
		return err
	}
	if more, _ := Pods.PacketsFrom(pair.HostName); more <= sent {
		t.Errorf("the pod has sent %d packets, and %d before", more, sent)
	}
	return nil
}

// peerOf reads the pod's end of the device whose host end has the given index.
func peerOf(hostIndex int) (*netlink.LinkAttrs, error) {
	host, err := netlink.LinkByIndex(hostIndex)
	if err != nil {
		return nil, err
	}
	return readPeer(host)
}

// echo listens on address in the calling thread's namespace and exchanges a few bytes with a client in the pod.
func echo(pod ns.NetNS, address string, patience time.Duration) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	return pod.Do(func(ns.NetNS) error {
		conn, err := net.DialTimeout("tcp", listener.Addr().String(), patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("bee")); err != nil {
			return err
		}
		got := make([]byte, 3)
		if _, err := io.ReadFull(conn, got); err != nil {
			return err
		}
		if string(got) != "bee" {
			return fmt.Errorf("got %q back", got)
		}
		return nil
	})
}

func TestHostEndSettings(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	devicetest.Inside(t, node, func() error {
		// The defaults of new devices are the opposite of the settings of a host end.
		if err := errors.Join(
			sysctl.SetDevice("ipv6", "default", "accept_ra=1", "disable_ipv6=1", "forwarding=0", "addr_gen_mode=0"),
			sysctl.SetDevice("ipv4", "default", "rp_filter=1", "forwarding=0")); err != nil {
			return err
		}
		pair, err := Pods.Create(PodSpec{Kind: kind, ContainerID: "a", IfName: "eth0", Netns: pod.Path()})
		if err != nil {
			return err
		}
		for key, want := range map[string]string{
			"ipv6/conf/NAME/accept_ra": "0", "ipv6/conf/NAME/disable_ipv6": "0", "ipv6/conf/NAME/forwarding": "1", "ipv6/conf/NAME/addr_gen_mode": "1",
			"ipv4/conf/NAME/rp_filter": "0", "ipv4/conf/NAME/forwarding": "1",
		} {
			content, err := os.ReadFile("/proc/sys/net/" + strings.Replace(key, "NAME", pair.HostName, 1))
			if err != nil {
				return err
			}
			if got := strings.TrimSpace(string(content)); got != want {
				t.Errorf("%s is %s, want %s", key, got, want)
			}
		}
		return nil
	})
}

func TestPodWithoutIPv6HasNone(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	newPod(t, node, pod, "a", pod4)
	devicetest.Inside(t, pod, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(link, unix.AF_INET6)
		if err != nil {
			return err
		}
		if len(addresses) != 0 {
			t.Errorf("IPv6 addresses: %v", addresses)
		}
		return nil
	})
}

// The pod's kernel drops path MTUs that it learned through an IPv6 gateway without NTF_ROUTER.
func TestGatewayIsARouter(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	newPod(t, node, pod, "a", pod4, pod6)
	devicetest.Inside(t, pod, func() error {
		entries, err := netlink.NeighList(0, unix.AF_INET6)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if entry.IP.Equal(gateway6.AsSlice()) {
				if entry.Flags&netlink.NTF_ROUTER == 0 || entry.State&netlink.NUD_PERMANENT == 0 {
					t.Errorf("the entry of the gateway has state %#x and flags %#x", entry.State, entry.Flags)
				}
				return nil
			}
		}
		return fmt.Errorf("no entry of %s", gateway6)
	})
}

func TestCheckNamesTheDifference(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	_, cfg := newPod(t, node, pod, "a", pod4, pod6)
	withLink := func(f func(netlink.Link) error) func() error {
		return func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return f(link)
		}
	}
	// Each step breaks one more thing, which Check reports before earlier ones.
	steps := []struct {
		breaks func() error
		want   string
	}{
		{withLink(func(l netlink.Link) error {
			return netlink.RouteDel(&gatewayRoutes(l.Attrs().Index, gateway6)[1])
		}), "the route"},
		{withLink(func(l netlink.Link) error {
			return neigh.SetPermanent(l.Attrs().Index, gateway4, net.HardwareAddr{2, 0, 0, 0, 0, 9})
		}), "neighbour entry 169.254.1.1"},
		{withLink(func(l netlink.Link) error { return netlink.AddrDel(l, podAddress(pod6)) }), "address fd00:1::5/128"},
		{withLink(func(l netlink.Link) error { return netlink.AddrDel(l, podAddress(pod4)) }), "address 10.1.0.5/32"},
		{func() error { _, err := sysctl.Set("net/ipv6/conf/eth0/accept_ra", "1"); return err }, "accept_ra is 1, not 0"},
		{withLink(func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1300) }), "MTU is 1300, not 1400"},
		{withLink(netlink.LinkSetDown), "device is down"},
		{withLink(netlink.LinkDel), "find eth0 in the pod"},
	}
	for _, step := range steps {
		devicetest.Inside(t, pod, step.breaks)
		if err := Pods.Check(pod.Path(), "eth0", cfg); err == nil || !strings.Contains(err.Error(), step.want) {
			t.Errorf("got %v, want something about %q", err, step.want)
		}
	}
}

func TestCreateLeavesNothingBehind(t *testing.T) {
	links := func(namespace ns.NetNS) (names []string) {
		devicetest.Inside(t, namespace, func() error {
			list, err := netlink.LinkList()
			for _, link := range list {
				names = append(names, link.Attrs().Name)
			}
			return err
		})
		return names
	}
	tests := map[string]struct {
		node, pod []string // devices there before
		spec      func(node, pod ns.NetNS) PodSpec
	}{
		"name taken in the pod": {
			pod: []string{"eth0", "eth1"},
			spec: func(_, pod ns.NetNS) PodSpec {
				return PodSpec{Kind: kind, ContainerID: "a", IfName: "eth0", Netns: pod.Path()}
			},
		},
		"name taken on the host": {
			node: []string{HostName("a", "eth0"), "other"},
			spec: func(_, pod ns.NetNS) PodSpec {
				return PodSpec{Kind: kind, ContainerID: "a", IfName: "eth0", Netns: pod.Path()}
			},
		},
		"no such namespace": {
			spec: func(ns.NetNS, ns.NetNS) PodSpec {
				return PodSpec{Kind: kind, ContainerID: "a", IfName: "eth0", Netns: "/run/netns/absent"}
			},
		},
		"the node's own namespace": {
			spec: func(node, _ ns.NetNS) PodSpec {
				return PodSpec{Kind: kind, ContainerID: "a", IfName: "eth0", Netns: node.Path()}
			},
		},
		"impossible MTU": {
			spec: func(_, pod ns.NetNS) PodSpec {
				return PodSpec{Kind: kind, ContainerID: "a", IfName: "eth0", Netns: pod.Path(), MTU: 70000}
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node, pod := testenv.NewNetns(t), testenv.NewNetns(t)
			for namespace, devices := range map[ns.NetNS][]string{node: test.node, pod: test.pod} {
				if len(devices) == 2 {
					devicetest.Inside(t, namespace, func() error { return devicetest.AddVeth(devices[0], devices[1]) })
				}
			}
			before := fmt.Sprint(links(node), links(pod))
			devicetest.Inside(t, node, func() error {
				if pair, err := Pods.Create(test.spec(node, pod)); err == nil {
					t.Errorf("no error but %+v", pair)
				}
				return nil
			})
			if after := fmt.Sprint(links(node), links(pod)); after != before {
				t.Errorf("devices before %s, after %s", before, after)
			}
		})
	}
}

// The step after the creation fails because /proc/sys is read-only, as in an unprivileged container.
func TestCreateUndoesWhenPreparingFails(t *testing.T) {
	node, pod := testenv.NewNetns(t), testenv.NewNetns(t)
	var made error
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the mounts end with the thread
		done <- errors.Join(
			unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""),
			unix.Mount("", "/proc/sys", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
			unix.Setns(int(node.Fd()), unix.CLONE_NEWNET))
		_, made = Pods.Create(PodSpec{Kind: kind, ContainerID: "a", IfName: "eth0", Netns: pod.Path()})
		done <- nil
	}()
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(made, unix.EROFS) {
		t.Errorf("got %v, want a sysctl that cannot be written", made)
	}
	devicetest.Inside(t, node, func() error {
		_, found, err := Pods.HostEnd(HostName("a", "eth0"))
		if found {
			t.Error("the host end is still there")
		}
		return err
	})
	devicetest.Inside(t, pod, func() error {
		if _, err := devicetest.IndexOf("eth0"); !rtnl.IsNotFound(err) {
			t.Errorf("the pod's end is still there: %v", err)
		}
		return nil
	})
}

func TestDelete(t *testing.T) {
	node, pod := devicetest.NewNode(t), testenv.NewNetns(t)
	pair, _ := newPod(t, node, pod, "a", pod4)
	devicetest.Inside(t, node, func() error {
		for range 2 { // the second time it does not exist
			if err := Pods.Delete(pair.HostName); err != nil {
				t.Error(err)
			}
		}
		if err := Pods.Delete("up0"); err == nil {
			t.Error("deleted a device that is not a pod's")
		}
		_, err := devicetest.IndexOf("up0")
		return err
	})
	devicetest.Inside(t, pod, func() error {
		if _, err := devicetest.IndexOf("eth0"); !rtnl.IsNotFound(err) {
			t.Errorf("the pod's end is still there: %v", err)
		}
		return nil
	})
}

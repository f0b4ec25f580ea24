package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// vlanPool is the manifest of an IPPool of a VLAN on the nodes' uplink, whose subnets have the VLAN's number.
func vlanPool(name, device string, tag, first, last int) string {
	return vlanPoolOn(testbed.Uplink, name, device, tag, first, last)
}

// vlanPoolOn is one on this device.
func vlanPoolOn(uplink, name, device string, tag, first, last int) string {
	return fmt.Sprintf("---\napiVersion: networking.beeline.dev/v1alpha1\nkind: IPPool\nmetadata: {name: %[1]s}\nspec:\n  subnets: [198.18.%[3]d.0/24, \"2001:db8:18:%[3]d::/64\"]\n"+
		"  ranges: [198.18.%[3]d.%[4]d-198.18.%[3]d.%[5]d, \"2001:db8:18:%[3]d::%[4]d-2001:db8:18:%[3]d::%[5]d\"]\n  uplink: %[6]s\n  vlan: %[3]d\n  device: %[2]s\n  probe: false\n",
		name, device, tag, first, last, uplink)
}

// tryNamedPool adds a pod whose network names the pool.
func (w *external) tryNamedPool(n *node, pool, name string) (machine, error) {
	w.t.Helper()
	own := pluginConf(n)
	own["ipPool"] = pool
	pod := w.newPod(n, name)
	_, err := w.networkOf(n, current(w.t), "1.1.0", own).add(w.t.Context(), pod, runtimeConf(pod))
	return machine{name, pod.Netns, pod.Addresses}, err
}

// addNamedPool repeats it: the agent may not have read the pool yet.
func (w *external) addNamedPool(n *node, pool, name string) (m machine) {
	w.t.Helper()
	try := 0
	eventually(w.t, func() (err error) {
		try++
		m, err = w.tryNamedPool(n, pool, fmt.Sprintf("%s-%d", name, try))
		return err
	})
	m.name = name
	return m
}

// addressesOf are those of a host in the subnets of vlanPool.
func addressesOf(tag, host int) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr(fmt.Sprintf("198.18.%d.%d", tag, host)), netip.MustParseAddr(fmt.Sprintf("2001:db8:18:%d::%d", tag, host))}
}

// inVLAN gives a machine's uplink a VLAN device with addresses in the subnets of vlanPool, or addresses to the device that
// it has.
func (w *external) inVLAN(m machine, tag, host int) machine {
	w.t.Helper()
	return w.inVLANOn(testbed.Uplink, m, tag, host)
}

// inVLANOn does so on this device.
func (w *external) inVLANOn(uplink string, m machine, tag, host int) machine {
	w.t.Helper()
	name := fmt.Sprintf("%s.%d", uplink, tag)
	in := machine{fmt.Sprintf("%s in VLAN %d", m.name, tag), m.netns, addressesOf(tag, host)}
	err := m.netns.Netlink(func(h *netlink.Handle) error {
		below, err := h.LinkByName(uplink)
		if err != nil {
			return err
		}
		err = h.LinkAdd(&netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: below.Attrs().Index}, VlanId: tag})
		if errors.Is(err, unix.EOPNOTSUPP) {
			testenv.Missing(w.t, "not on this kernel: VLAN devices")
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		for i, a := range in.addresses {
			if err := h.AddrAdd(link, &netlink.Addr{IPNet: testbed.IPNet(netip.PrefixFrom(a, []int{24, 64}[i])), Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
		}
		return h.LinkSetUp(link)
	})
	if err != nil {
		w.t.Fatalf("%s: %v", in.name, err)
	}
	return in
}

// macOf gives the MAC of a pod's eth0.
func (w *external) macOf(m machine) (mac string) {
	w.t.Helper()
	err := m.netns.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName("eth0")
		if err == nil {
			mac = link.Attrs().HardwareAddr.String()
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return mac
}

// captureTags records with which VLAN tags each source MAC leaves by a node's uplink, until stop; 0 is no tag.
func (w *external) captureTags(n *node) (stop func() map[string]map[int]int) {
	w.t.Helper()
	fd, seen, done := -1, map[string]map[int]int{}, make(chan struct{})
	err := n.Do(func() (err error) {
		link, err := net.InterfaceByName(testbed.Uplink)
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index, Protocol: all}),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	})
	if err != nil {
		w.t.Fatal(err)
	}
	stopping := make(chan struct{})
	go func() {
		defer close(done)
		frame, control := make([]byte, 2048), make([]byte, 256)
		for {
			length, controls, _, from, err := unix.Recvmsg(fd, frame, control, 0)
			if err != nil {
				select {
				case <-stopping:
					return
				default:
					continue
				}
			}
			sender, is := from.(*unix.SockaddrLinklayer)
			if !is || sender.Pkttype != unix.PACKET_OUTGOING || length < 14 {
				continue
			}
			tag := 0
			if messages, err := unix.ParseSocketControlMessage(control[:controls]); err == nil {
				for _, m := range messages {
					if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 20 {
						if status := uint32(m.Data[0]) | uint32(m.Data[1])<<8; status&unix.TP_STATUS_VLAN_VALID != 0 {
							tag = int(m.Data[16]) | int(m.Data[17])<<8
						}
					}
				}
			}
			if frame[12] == 0x81 && frame[13] == 0 { // a tag in the frame
				tag = 4096 + int(frame[14])<<8 + int(frame[15])
			}
			mac := net.HardwareAddr(frame[6:12]).String()
			if seen[mac] == nil {
				seen[mac] = map[int]int{}
			}
			seen[mac][tag]++
		}
	}()
	return func() map[string]map[int]int {
		close(stopping)
		<-done
		unix.Close(fd)
		return seen
	}
}

// A pool of a VLAN and one without are on one uplink at once, with macvlan devices. Their pods reach hosts of their
// network, and their frames have the tag of the pool and no other.
func TestVLANsOfPools(t *testing.T) {
	t.Parallel()
	w := newExternal(t)
	outside7 := w.inVLAN(w.outside, 7, 1)
	plain := strings.Replace(string(poolOf("plain", w.here, "macvlan", 200, 209)), "default: true", "probe: false", 1)
	w.writeManifest("ippool.yaml", []byte(plain+vlanPool("seven", "macvlan", 7, 10, 19)))
	untagged := w.addNamedPool(w.here, "plain", "plain")
	stop := w.captureTags(w.here)
	seven := w.addNamedPool(w.here, "seven", "seven")
	w.expect(seven, outside7, seven)
	w.expect(outside7, seven, outside7)
	w.expect(untagged, w.outside, untagged)
	seen := stop()
	for _, of := range []struct {
		pod machine
		tag int
	}{{seven, 7}, {untagged, 0}} {
		tags := seen[w.macOf(of.pod)]
		if tags[of.tag] == 0 || len(tags) != 1 {
			t.Errorf("frames of pod %s left with tags %v, want %d only", of.pod.name, tags, of.tag)
		}
	}
}

// otherUplink is the device that joins the first node and the external machine besides their uplinks.
const otherUplink = "eth1"

func (w *external) joinOutside() {
	w.t.Helper()
	var outside int
	if err := w.outside.netns.Do(func() (err error) {
		outside, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	defer unix.Close(outside)
	up := func(h *netlink.Handle) error {
		link, err := h.LinkByName(otherUplink)
		if err != nil {
			return err
		}
		return h.LinkSetUp(link)
	}
	err := w.here.Netlink(func(h *netlink.Handle) error {
		if err := h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: otherUplink}, PeerName: otherUplink, PeerNamespace: netlink.NsFd(outside)}); err != nil {
			return err
		}
		return up(h)
	})
	if err := errors.Join(err, w.outside.netns.Netlink(up)); err != nil {
		w.t.Fatalf("second uplink: %v", err)
	}
}

// vlanLab has pods of two VLANs on one node, one on each of its uplinks: macvlan devices, whose VLAN device the agent makes,
// and the routed underlay, whose VLAN device is the administrator's.
type vlanLab struct {
	*policyLab
	// seven and second are the macvlan pods, eight is the routed one.
	seven, second, eight machine
	// outside7 and outside8 are hosts of the VLANs.
	outside7, outside8 machine
}

func newVLANLab(t *testing.T) *vlanLab {
	l := &vlanLab{policyLab: &policyLab{external: newServiceLab(t).external, labels: map[string]string{}}}
	l.joinOutside()
	l.outside7, l.outside8 = l.inVLAN(l.outside, 7, 1), l.inVLANOn(otherUplink, l.outside, 8, 1)
	l.inVLANOn(otherUplink, l.node, 8, 2)
	l.writeManifest("ippool.yaml", []byte(vlanPool("seven", string(device.Macvlan), 7, 10, 19)+vlanPoolOn(otherUplink, "eight", testenv.DeviceKind(), 8, 10, 19)))
	l.seven, l.second, l.eight = l.addVLANPod("seven", "seven"), l.addVLANPod("seven", "second"), l.addVLANPod("eight", "eight")
	l.labels[l.pod.name] = "other"
	for _, m := range []machine{l.seven, l.eight, l.pod, l.outside7, l.outside8} {
		serveName(t, m, backendPort)
		serveName(t, m, otherPort)
	}
	return l
}

// addVLANPod adds a pod with this label, and the name that its Pod object is to have.
func (l *vlanLab) addVLANPod(pool, app string) (m machine) {
	l.t.Helper()
	try := 0
	eventually(l.t, func() (err error) {
		try++
		m, err = l.tryNamedPool(l.here, pool, fmt.Sprintf("%s-%d", app, try))
		return err
	})
	l.labels[m.name] = app
	return m
}

// Pods of VLANs of two uplinks are clients and backends of Services, policies apply to them, and uninstall removes the VLAN
// device that the agent has made and no other.
func TestVLANPods(t *testing.T) {
	t.Parallel()
	l := newVLANLab(t)
	l.expect(l.seven, l.outside7, l.seven)
	l.expect(l.outside8, l.eight, l.outside8)
	l.expect(l.eight, l.outside8, l.eight)
	l.expect(l.seven, l.eight, l.seven)
	l.expect(l.eight, l.seven, l.eight)
	l.expectServices()
	l.expectPolicies()
	l.expectUninstall()
}

func (l *vlanLab) expectServices() {
	l.t.Helper()
	services := serviceLab{l.external}
	for _, backend := range []machine{l.seven, l.eight, l.pod} {
		yaml := nodePorts(serviceYAML("web", serviceOfFar, "  type: NodePort\n", backend), nodePort)
		l.writeManifest("service.yaml", bytes.ReplaceAll(yaml, []byte("conditions: {ready: true}"), []byte("nodeName: "+l.here.Name+", conditions: {ready: true}")))
		for i, a := range serviceOfFar {
			clusterIP, node := netip.AddrPortFrom(a, servicePort), netip.AddrPortFrom(l.node.addresses[i], nodePort)
			for _, client := range []machine{l.seven, l.second, l.eight, l.pod, l.node} {
				services.expectReply(client, clusterIP, backend)
				services.expectReply(client, node, backend)
			}
			// Packet by packet: of pods, and from outside.
			for client, to := range map[*machine]netip.AddrPort{&l.seven: clusterIP, &l.eight: clusterIP, &l.outside: node} {
				eventually(l.t, func() error {
					got, err := fetchOutside(*client, to)
					if err == nil && got != backend.name {
						err = errors.New("another backend")
					}
					if err != nil {
						return fmt.Errorf("%s to %s: reply of %q, %w; want %s", client.name, to, got, err, backend.name)
					}
					return nil
				})
			}
		}
	}
}

func (l *vlanLab) expectPolicies() {
	l.t.Helper()
	var pods bytes.Buffer
	for _, m := range []machine{l.seven, l.second, l.eight, l.pod} {
		fmt.Fprintf(&pods, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %[1]s, namespace: default, labels: {app: %[2]s}}\nspec: {}\nstatus: {podIPs: [{ip: %[3]s}, {ip: '%[4]s'}]}\n",
			m.name, l.labels[m.name], m.addresses[0], m.addresses[1])
	}
	l.writeManifest("pods.yaml", pods.Bytes())
	l.policy("in", fmt.Sprintf("{podSelector: {matchExpressions: [{key: app, operator: In, values: [seven, eight]}]}, policyTypes: [Ingress], "+
		"ingress: [{from: [{podSelector: {matchLabels: {app: second}}}], ports: [{port: %d}]}]}", backendPort))
	for _, server := range []machine{l.seven, l.eight} {
		l.expectPorts(l.second, server, backendPort)
		for _, client := range []machine{l.outside7, l.outside8, l.pod} {
			if client.netns != l.outside.netns || l.sameVLAN(client, server) {
				l.expectPorts(client, server)
			}
		}
	}
	l.expectPorts(l.seven, l.outside7, backendPort, otherPort)
	l.noPolicy("in")
	l.policy("out", fmt.Sprintf("{podSelector: {matchExpressions: [{key: app, operator: In, values: [seven, eight]}]}, policyTypes: [Egress], "+
		"egress: [{to: [{ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: '%s/128'}}, {ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: '%s/128'}}], ports: [{port: %d}]}]}",
		l.outside7.addresses[0], l.outside7.addresses[1], l.outside8.addresses[0], l.outside8.addresses[1], backendPort))
	l.expectPorts(l.seven, l.outside7, backendPort)
	l.expectPorts(l.eight, l.outside8, backendPort)
	l.expectPorts(l.seven, l.eight)
	l.expectPorts(l.eight, l.seven)
	l.expectPorts(l.seven, l.pod)
	l.expectPorts(l.outside7, l.seven, backendPort, otherPort)
	l.noPolicy("out")
	l.expectPorts(l.seven, l.eight, backendPort, otherPort)
}

// sameVLAN tells whether two machines have addresses of one subnet.
func (l *vlanLab) sameVLAN(one, other machine) bool {
	const bits = 24
	return netip.PrefixFrom(one.addresses[0], bits).Masked().Contains(other.addresses[0])
}

func (l *vlanLab) expectUninstall() {
	l.t.Helper()
	if err := l.terminate(l.here); err != nil {
		l.t.Error(err)
	}
	p := current(l.t)
	args := append([]string{"uninstall", "--force", "--state-dir", l.here.stateDir(), "--bpffs", l.here.BPFFS}, newHost(l.t, p).flags()...)
	if output, err := l.here.Output(l.t.Context(), p.Agent(), args...); err != nil {
		l.t.Errorf("uninstall: %s, %v", output, err)
	}
	var vlans []string
	var addresses []netlink.Addr
	err := l.here.Netlink(func(h *netlink.Handle) error {
		links, err := h.LinkList()
		if err != nil {
			return err
		}
		for _, link := range links {
			if strings.HasPrefix(link.Attrs().Alias, "beeline: VLAN") {
				l.t.Errorf("uninstall leaves %s", link.Attrs().Name)
			}
			if link.Type() == "vlan" {
				vlans = append(vlans, link.Attrs().Name)
				if addresses, err = h.AddrList(link, netlink.FAMILY_V4); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if want := []string{otherUplink + ".8"}; err != nil || !slices.Equal(vlans, want) || len(addresses) != 1 {
		l.t.Errorf("VLAN devices after uninstall: %v, with addresses %v, %v; want %v of the administrator, with its own", vlans, addresses, err, want)
	}
	for _, m := range []machine{l.seven, l.second} {
		err := m.netns.Netlink(func(h *netlink.Handle) error {
			_, err := h.LinkByName("eth0")
			return err
		})
		if !errors.As(err, &netlink.LinkNotFoundError{}) {
			l.t.Errorf("pod %s has its device after the programs are gone: %v", m.name, err)
		}
	}
	l.expect(l.node, l.outside8, machine{"node in VLAN 8", l.node.netns, addressesOf(8, 2)})
}

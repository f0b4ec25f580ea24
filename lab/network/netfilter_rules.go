package network

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/containernetworking/plugins/pkg/ns"
)

// netfilterServices is how many Services the rule set stands for, each with two endpoints.
const netfilterServices = 50

// noRules is the fact "netfilter" of networks that install no rules.
const noRules = "no rules on the nodes, conntrack not active"

// netfilterRules is a rule set in the form and order of kube-proxy's iptables mode, as input to
// iptables-restore: service portals in PREROUTING and OUTPUT, one chain for each Service and endpoint,
// masquerade by mark, and the forward rules for invalid, marked and established packets. podNetwork is what
// --cluster-cidr would be; podToPod adds, ahead of any plugin's masquerade, the rule that leaves packets
// between pods alone, because Kubernetes requires pods to reach pods without address translation.
func netfilterRules(podNetwork netip.Prefix, services int, podToPod bool) []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	line("*filter")
	for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		line(":%s ACCEPT [0:0]", chain)
	}
	for _, chain := range []string{"EXTERNAL-SERVICES", "FIREWALL", "FORWARD", "NODEPORTS", "PROXY-FIREWALL", "SERVICES"} {
		line(":KUBE-%s - [0:0]", chain)
	}
	const fresh = "-m conntrack --ctstate NEW"
	for _, chain := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		line(`-A %s %s -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`, chain, fresh)
	}
	line(`-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS`)
	line(`-A INPUT %s -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES`, fresh)
	line(`-A INPUT -j KUBE-FIREWALL`)
	line(`-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`)
	line(`-A FORWARD %s -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`, fresh)
	line(`-A FORWARD %s -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES`, fresh)
	line(`-A OUTPUT %s -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`, fresh)
	line(`-A OUTPUT -j KUBE-FIREWALL`)
	if podNetwork.Addr().Is4() {
		line(`-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`)
	}
	line(`-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP`)
	line(`-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT`)
	line(`-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`)
	line("COMMIT")

	line("*nat")
	for _, chain := range []string{"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"} {
		line(":%s ACCEPT [0:0]", chain)
	}
	for _, chain := range []string{"MARK-MASQ", "NODEPORTS", "POSTROUTING", "SERVICES"} {
		line(":KUBE-%s - [0:0]", chain)
	}
	all := makeServices(podNetwork, services)
	for _, s := range all {
		line(":%s - [0:0]", s.chain)
		for _, e := range s.endpoints {
			line(":%s - [0:0]", e.chain)
		}
	}
	line(`-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`)
	line(`-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`)
	line(`-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`)
	if podToPod {
		line(`-A POSTROUTING -s %s -d %[1]s -m comment --comment "pods reach pods without translation" -j ACCEPT`, podNetwork)
	}
	line(`-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000`)
	line(`-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN`)
	line(`-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000`)
	line(`-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully`)
	for _, s := range all {
		s.write(line, podNetwork)
	}
	line(`-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS`)
	line("COMMIT")
	return b.Bytes()
}

type service struct {
	name, chain string
	clusterIP   netip.Prefix
	endpoints   []serviceEndpoint
}

type serviceEndpoint struct {
	chain   string
	address netip.Addr
}

// makeServices returns each Service an address of the Service range and an endpoint on the first two nodes.
// No pod has these addresses: the rules are passed, not used, by what the bench measures.
func makeServices(podNetwork netip.Prefix, count int) []service {
	const endpointBase = 180
	var all []service
	for i := 1; i <= count; i++ {
		s := service{name: fmt.Sprintf("default/service-%d:http", i)}
		s.chain = "KUBE-SVC-" + chainHash(s.name)
		for node := 1; node <= 2; node++ {
			var a netip.Addr
			if podNetwork.Addr().Is4() {
				b := podNetwork.Addr().As4()
				b[2], b[3] = byte(node), byte(endpointBase+i)
				a = netip.AddrFrom4(b)
			} else {
				b := podNetwork.Addr().As16()
				b[5], b[15] = byte(node), byte(endpointBase+i)
				a = netip.AddrFrom16(b)
			}
			s.endpoints = append(s.endpoints, serviceEndpoint{"KUBE-SEP-" + chainHash(s.name+a.String()), a})
		}
		if podNetwork.Addr().Is4() {
			s.clusterIP = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), 32)
		} else {
			s.clusterIP = netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x96, 15: byte(i)}), 128)
		}
		all = append(all, s)
	}
	return all
}

func (s service) write(line func(string, ...any), podNetwork netip.Prefix) {
	match := fmt.Sprintf(`-d %s -p tcp -m comment --comment "%s cluster IP" -m tcp --dport 80`, s.clusterIP, s.name)
	line(`-A KUBE-SERVICES %s -j %s`, match, s.chain)
	line(`-A %s ! -s %s %s -j KUBE-MARK-MASQ`, s.chain, podNetwork, match)
	for i, e := range s.endpoints {
		target := netip.AddrPortFrom(e.address, 8080)
		share := ""
		if left := len(s.endpoints) - i; left > 1 {
			share = fmt.Sprintf("-m statistic --mode random --probability %.11f ", 1/float64(left))
		}
		line(`-A %s -m comment --comment "%s -> %s" %s-j %s`, s.chain, s.name, target, share, e.chain)
		line(`-A %s -s %s -m comment --comment "%s" -j KUBE-MARK-MASQ`, e.chain, e.address, s.name)
		line(`-A %s -p tcp -m comment --comment "%s" -m tcp -j DNAT --to-destination %s`, e.chain, s.name, target)
	}
}

// chainHash makes 16 characters that iptables takes in the name of a chain (28 characters at most).
func chainHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// installNetfilterRules puts the same rules on every node, as many nodes of one cluster have them.
func installNetfilterRules(ctx context.Context, lab *testbed.Lab) error {
	for _, node := range lab.Nodes() {
		for _, f := range families(lab.IPv6) {
			cmd := exec.CommandContext(ctx, f.restore)
			cmd.Stdin = bytes.NewReader(netfilterRules(f.podNetwork, netfilterServices, true))
			if err := runQuiet(node.Netns, cmd); err != nil {
				return fmt.Errorf("install kube-proxy rules on %s: %w", node.Name, err)
			}
		}
	}
	return nil
}

type family struct {
	restore, save string
	podNetwork    netip.Prefix
}

func families(ipv6 bool) []family {
	all := []family{{"iptables-restore", "iptables-save", testbed.PodNetworkIPv4}}
	if ipv6 {
		all = append(all, family{"ip6tables-restore", "ip6tables-save", testbed.PodNetworkIPv6})
	}
	return all
}

// netfilterRulesUnsupported installs the rules once in a namespace that ends with the probe.
var netfilterRulesUnsupported = sync.OnceValue(func() string {
	if _, err := exec.LookPath("iptables-restore"); err != nil {
		return "not installed: iptables-restore (Debian package iptables)"
	}
	probe, err := ns.TempNetNS()
	if err != nil {
		return "" // not root: the lab says so itself
	}
	defer probe.Close()
	err = probe.Do(func(ns.NetNS) error {
		cmd := exec.Command("iptables-restore")
		cmd.Stdin = bytes.NewReader(netfilterRules(testbed.PodNetworkIPv4, 1, true))
		return runQuiet(testbed.Netns{}, cmd)
	})
	if err != nil {
		return "not on this kernel: kube-proxy's rules (" + firstLine(err.Error()) + ")"
	}
	return ""
})

// netfilterFacts counts what lies on the first node now, the rules of CNI plugins included.
func netfilterFacts(ctx context.Context, lab *testbed.Lab, facts map[string]string) {
	netns := lab.Node(0).Netns
	rules := 0
	for _, f := range families(lab.IPv6) {
		out, err := netns.Output(ctx, f.save)
		if err != nil {
			facts["netfilter"] = "rules cannot be counted: " + err.Error()
			return
		}
		rules += bytes.Count(out, []byte("\n-A "))
	}
	facts["netfilter"] = fmt.Sprintf("conntrack and kube-proxy-like rules for %d Services on every node", netfilterServices)
	facts["netfilter rules"] = strconv.Itoa(rules)
	if out, err := netns.Output(ctx, "iptables", "--version"); err == nil {
		facts["iptables"] = strings.TrimSpace(string(out))
	}
}

// runQuiet runs a command whose output matters only when it fails.
func runQuiet(netns testbed.Netns, cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := netns.Run(cmd)
	if err == nil {
		return nil
	}
	if text := strings.TrimSpace(said.String()); text != "" {
		return fmt.Errorf("run %s: %w: %s", cmd.Path, err, text)
	}
	return fmt.Errorf("run %s: %w", cmd.Path, err)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

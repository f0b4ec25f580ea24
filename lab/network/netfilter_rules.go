package network

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"text/template"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// netfilterServices is how many Services the rule set stands for, each with two endpoints.
const netfilterServices = 50

// noRules is the fact "netfilter" of networks that install no rules.
const noRules = "no rules on the nodes, conntrack not active"

//go:embed kubeproxy.rules.tmpl
var rulesText string

var rulesTemplate = template.Must(template.New("rules").Parse(rulesText))

// netfilterRules is a rule set in the form and order of kube-proxy's iptables mode, as input to
// iptables-restore: service portals in PREROUTING and OUTPUT, one chain for each Service and endpoint,
// masquerade by mark, and the forward rules for invalid, marked and established packets. podNetwork is what
// --cluster-cidr would be; podToPod adds, ahead of any plugin's masquerade, the rule that leaves packets
// between pods alone, because Kubernetes requires pods to reach pods without address translation.
func netfilterRules(podNetwork netip.Prefix, services int, podToPod bool) string {
	var b strings.Builder
	err := rulesTemplate.Execute(&b, map[string]any{
		"Pods": podNetwork, "Services": makeServices(podNetwork, services), "PodToPod": podToPod,
	})
	if err != nil {
		panic(err) // the template is part of the program
	}
	return b.String()
}

type service struct {
	Name, Chain string
	ClusterIP   netip.Prefix
	Endpoints   []serviceEndpoint
}

type serviceEndpoint struct {
	Chain  string
	Target netip.AddrPort
}

// makeServices gives each Service an address of the Service range and an endpoint on the first two nodes.
// No pod has these addresses: the rules are passed, not used, by what the bench measures.
func makeServices(podNetwork netip.Prefix, count int) []service {
	const endpointBase = 180
	var all []service
	for i := 1; i <= count; i++ {
		s := service{Name: fmt.Sprintf("default/service-%d:http", i)}
		s.Chain = "KUBE-SVC-" + chainHash(s.Name)
		for node := 1; node <= 2; node++ {
			a := podNetwork.Addr().AsSlice()
			if podNetwork.Addr().Is4() {
				a[2], a[3] = byte(node), byte(endpointBase+i)
			} else {
				a[5], a[15] = byte(node), byte(endpointBase+i)
			}
			address, _ := netip.AddrFromSlice(a)
			s.Endpoints = append(s.Endpoints, serviceEndpoint{"KUBE-SEP-" + chainHash(s.Name+address.String()), netip.AddrPortFrom(address, 8080)})
		}
		clusterIP := netip.AddrFrom4([4]byte{10, 96, 0, byte(i)})
		if podNetwork.Addr().Is6() {
			clusterIP = netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x96, 15: byte(i)})
		}
		s.ClusterIP = netip.PrefixFrom(clusterIP, clusterIP.BitLen())
		all = append(all, s)
	}
	return all
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
			if err := node.Input(ctx, netfilterRules(f.podNetwork, netfilterServices, true), f.restore); err != nil {
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

// netfilterFacts counts what lies on the first node now, the rules of CNI plugins included.
func netfilterFacts(ctx context.Context, lab *testbed.Lab, facts map[string]string) {
	node := lab.Node(0)
	rules := 0
	for _, f := range families(lab.IPv6) {
		out, err := node.Output(ctx, f.save)
		if err != nil {
			facts["netfilter"] = "rules cannot be counted: " + err.Error()
			return
		}
		rules += bytes.Count(out, []byte("\n-A "))
	}
	facts["netfilter"] = fmt.Sprintf("conntrack and kube-proxy-like rules for %d Services on every node", netfilterServices)
	facts["netfilter rules"] = strconv.Itoa(rules)
	if out, err := node.Output(ctx, "iptables", "--version"); err == nil {
		facts["iptables"] = strings.TrimSpace(string(out))
	}
}

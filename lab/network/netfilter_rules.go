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

// service is one of the rule set: it has an address of the Service range and an endpoint on each of the first two nodes.
type service struct {
	Name, ClusterIP string
	Endpoints       [2]netip.AddrPort
}

// makeServices gives the Services their addresses. No pod has those of the endpoints: the rules are passed, not used, by
// what the bench measures.
func makeServices(podNetwork netip.Prefix, count int) (all []service) {
	clusterIP, endpoint := "10.96.0.%d/32", "10.77.%d.%d:8080"
	if podNetwork.Addr().Is6() {
		clusterIP, endpoint = "fd96::%x/128", "[fd77:1:%x::%x]:8080"
	}
	for i := 1; i <= count; i++ {
		s := service{Name: fmt.Sprintf("default/service-%d:http", i), ClusterIP: fmt.Sprintf(clusterIP, i)}
		for node := range s.Endpoints {
			s.Endpoints[node] = netip.MustParseAddrPort(fmt.Sprintf(endpoint, node+1, 180+i))
		}
		all = append(all, s)
	}
	return all
}

// Chain is the name of the Service's chain.
func (s service) Chain() string { return "KUBE-SVC-" + chainHash(s.Name) }

// EndpointChain is the name of the chain of an endpoint.
func (s service) EndpointChain(endpoint netip.AddrPort) string {
	return "KUBE-SEP-" + chainHash(s.Name+endpoint.Addr().String())
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

package network

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/policies"
)

func TestPolicyRules(t *testing.T) {
	pod := func(name, node, address string, labels map[string]string) *corev1.Pod {
		return policies.Pod{Namespace: "default", Name: name, Node: node, Addresses: []netip.Addr{netip.MustParseAddr(address)}, Labels: labels, Web: 81}.Object()
	}
	server, client := map[string]string{"app": "server"}, map[string]string{"app": "client"}
	prefix, hole := netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.7/32")
	api := apiserver.New()
	if err := api.Put(
		policies.Namespace("default", nil),
		pod("s", "n1", "10.77.1.2", server), pod("c", "n2", "10.77.2.2", client), pod("other", "n1", "10.77.1.3", nil),
		policies.Policy("default", "in", server, append(
			policies.Ingress(policies.TCPPorts(80, 90, 91), policies.Pods(client, nil)),
			policies.Ingress([]networkingv1.NetworkPolicyPort{policies.Named(policies.WebPort)}, policies.Block(prefix, hole))...), nil),
		policies.Policy("default", "deny", server, nil, []networkingv1.NetworkPolicyEgressRule{}),
	); err != nil {
		t.Fatal(err)
	}
	rules, err := policyRules(api, "n1", []string{"POLICY-STALE"})
	if err != nil {
		t.Fatal(err)
	}
	in, out := "POLICY-"+chainHash("pod Ingressdefault/s"), "POLICY-"+chainHash("pod Egressdefault/s")
	ofIn, ofDeny := "POLICY-"+chainHash("policy Ingressdefault/in"), "POLICY-"+chainHash("policy Egressdefault/deny")
	var block string
	for line := range strings.Lines(string(rules)) {
		if strings.Contains(line, hole.String()) {
			block = strings.Fields(line)[1]
		}
	}
	const allow = "-j MARK --or-mark 0x10000"
	var named []string // every pod that has the port; those that the policy does not select have no chain
	for _, a := range []string{"10.77.2.2", "10.77.1.3", "10.77.1.2"} {
		named = append(named, "-A "+ofIn+" -s 192.0.2.0/24 -d "+a+" -p tcp -m tcp --dport 81 -j "+block)
	}
	want := strings.Join(append(append([]string{
		"*filter", ":POLICY - [0:0]", ":" + out + " - [0:0]", ":" + ofDeny + " - [0:0]", ":" + in + " - [0:0]", ":" + ofIn + " - [0:0]", ":" + block + " - [0:0]", ":POLICY-STALE - [0:0]",
		"-A POLICY -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
		"-A POLICY -s 10.77.1.2 -j " + out,
		"-A " + out + " -j MARK --and-mark 0xfffeffff",
		"-A " + out + " -j " + ofDeny,
		"-A " + out + " -m mark ! --mark 0x10000/0x10000 -j DROP",
		"-A POLICY -d 10.77.1.2 -j " + in,
		"-A " + in + " -j MARK --and-mark 0xfffeffff",
		"-A " + ofIn + " -s 10.77.2.2 -p tcp -m tcp --dport 80 " + allow,
		"-A " + ofIn + " -s 10.77.2.2 -p tcp -m tcp --dport 90:91 " + allow,
		"-A " + block + " -s 192.0.2.7/32 -j RETURN",
		"-A " + block + " " + allow,
	}, named...),
		"-A "+in+" -j "+ofIn,
		"-A "+in+" -m mark ! --mark 0x10000/0x10000 -j DROP",
		"-X POLICY-STALE", "COMMIT", "",
	), "\n")
	if diff := cmp.Diff(want, string(rules)); diff != "" {
		t.Error(diff)
	}
}

func TestPolicyNetworksAreDistinct(t *testing.T) {
	names, descriptions := map[string]bool{}, map[string]bool{}
	for _, c := range WithPolicies() {
		if names[c.Name()] || descriptions[c.Description()] || c.Description() == "" {
			t.Errorf("%q: %q is no name and description of its own", c.Name(), c.Description())
		}
		names[c.Name()], descriptions[c.Description()] = true, true
	}
}

package evaluate

import (
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// asked is one question with the expected answer: traffic like "dev/web > prod/web TCP 80".
type asked struct {
	traffic string
	allowed bool
}

func traffic(t *testing.T, text string) (out Traffic) {
	t.Helper()
	f := strings.Fields(text)
	if len(f) < 4 || f[1] != ">" {
		t.Fatalf("%q is not traffic", text)
	}
	out.Source, out.Destination = endpoint(t, f[0]), endpoint(t, f[2])
	protocol, ok := protocols[corev1.Protocol(f[3])]
	if !ok {
		t.Fatalf("%q is not a protocol", f[3])
	}
	out.Protocol = protocol
	if len(f) == 5 {
		n, err := strconv.ParseUint(f[4], 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		out.Port = uint16(n)
	}
	return out
}

// The documentation of the API, statement by statement.
func TestEvaluate(t *testing.T) {
	for _, c := range []struct {
		name     string
		policies []string
		asked    []asked
	}{
		{"by default, a pod is non-isolated", nil, []asked{
			{"dev/web > prod/web TCP 80", true}, {"203.0.113.7 > prod/web UDP 53", true}, {"prod/web > 203.0.113.7 ICMP", true},
		}},
		{"a policy without policyTypes isolates ingress", []string{`podSelector: {}`}, []asked{
			{"dev/web > prod/web TCP 80", false}, {"prod/db > prod/web TCP 80", false}, {"203.0.113.7 > prod/web SCTP 1", false},
			{"203.0.113.7 > prod/web ICMP", false}, {"prod/web > 203.0.113.7 TCP 80", true},
			{"prod/web > dev/web TCP 80", true}, {"dev/web > dev/tool TCP 80", true},
		}},
		{"without policyTypes, egress rules isolate egress too", []string{`{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}`}, []asked{
			{"prod/web > 203.0.113.7 TCP 80", true}, {"prod/web > 198.51.100.1 TCP 80", false}, {"dev/web > prod/web TCP 80", false},
		}},
		{"default deny of egress", []string{`{podSelector: {}, policyTypes: [Egress]}`}, []asked{
			{"prod/web > 203.0.113.7 TCP 80", false}, {"prod/web > 203.0.113.7 ICMP", false}, {"prod/web > prod/db TCP 80", false},
			{"203.0.113.7 > prod/web TCP 80", true},
		}},
		{"default deny of both", []string{`{podSelector: {}, policyTypes: [Ingress, Egress]}`}, []asked{
			{"prod/web > prod/db TCP 80", false}, {"dev/web > prod/db TCP 80", false}, {"prod/db > dev/web TCP 80", false}, {"dev/web > dev/tool TCP 80", true},
		}},
		{"rules of a direction that is not among policyTypes say nothing", []string{`{podSelector: {}, policyTypes: [Egress], ingress: []}`}, []asked{
			{"dev/web > prod/web TCP 80", true},
		}},
		{"allow all ingress", []string{`podSelector: {}`, `{podSelector: {}, ingress: [{}]}`}, []asked{
			{"dev/web > prod/web TCP 80", true}, {"203.0.113.7 > prod/web ICMP", true}, {"2001:db8::7 > prod/web ICMPv6", true},
		}},
		{"allow all egress", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{}]}`}, []asked{
			{"prod/web > 203.0.113.7 SCTP 80", true}, {"prod/web > 203.0.113.7 ICMP", true},
		}},
		{"the selector selects pods of the policy's namespace", []string{`podSelector: {matchLabels: {app: web}}`}, []asked{
			{"dev/web > prod/web TCP 80", false}, {"dev/web > prod/db TCP 80", true}, {"prod/web > dev/web TCP 80", true},
		}},
		{"both directions have to allow", []string{
			`{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}`,
			`{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`,
		}, []asked{{"prod/web > prod/db TCP 80", false}, {"prod/ended > prod/db TCP 80", false}, {"prod/web > 203.0.113.7 TCP 80", false}}},
		{"policies are additive", []string{
			`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 203.0.113.0/24}}], ports: [{port: 80}]}]}`,
			`{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}`,
		}, []asked{
			{"203.0.113.7 > prod/web TCP 80", true}, {"203.0.113.7 > prod/web TCP 81", false}, {"prod/db > prod/web TCP 81", true},
			{"prod/web > prod/db TCP 80", false}, {"203.0.113.7 > prod/db TCP 80", true},
		}},
		{"podSelector alone is of the policy's namespace", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`}, []asked{
			{"prod/web > prod/db TCP 1", true}, {"dev/web > prod/db TCP 1", false}, {"unheard/pod > prod/db TCP 1", false},
		}},
		{"namespaceSelector alone is all pods of those namespaces", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: x}}}]}]}`}, []asked{
			{"dev/web > prod/db TCP 1", true}, {"dev/tool > prod/db TCP 1", true}, {"prod/web > prod/db TCP 1", false}, {"203.0.113.7 > prod/db TCP 1", false},
		}},
		{"an empty namespaceSelector is all pods of all namespaces", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`}, []asked{
			{"dev/web > prod/db TCP 1", true}, {"unheard/pod > prod/db TCP 1", true}, {"prod/web > prod/db TCP 1", true}, {"203.0.113.7 > prod/db TCP 1", false},
		}},
		{"both selectors in one peer are ANDed", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: x}}, podSelector: {matchLabels: {app: web}}}]}]}`}, []asked{
			{"dev/web > prod/db TCP 1", true}, {"dev/tool > prod/db TCP 1", false}, {"prod/web > prod/db TCP 1", false},
		}},
		{"two peers are ORed", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: x}}}, {podSelector: {matchLabels: {app: web}}}]}]}`}, []asked{
			{"dev/web > prod/db TCP 1", true}, {"dev/tool > prod/db TCP 1", true}, {"prod/web > prod/db TCP 1", true}, {"prod/new > prod/db TCP 1", false},
		}},
		{"an unknown namespace has the label of its name", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: unheard}}}]}]}`}, []asked{
			{"unheard/pod > prod/db TCP 1", true}, {"dev/web > prod/db TCP 1", false},
		}},
		{"peers and ports are ANDed", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]}`}, []asked{
			{"prod/web > prod/db TCP 80", true}, {"prod/web > prod/db TCP 81", false}, {"dev/web > prod/db TCP 80", false},
		}},
		{"operators", []string{`{podSelector: {}, ingress: [
			{from: [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: tier, operator: Exists}]}}], ports: [{port: 1}]},
			{from: [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}}], ports: [{port: 2}]},
			{from: [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: In, values: [tool, new]}]}}], ports: [{port: 3}]},
			{from: [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [front]}]}}], ports: [{port: 4}]},
			{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: Exists}]}}], ports: [{port: 5}]}]}`}, []asked{
			{"prod/web > prod/db TCP 1", true}, {"dev/web > prod/db TCP 1", false},
			{"prod/web > prod/db TCP 2", false}, {"dev/web > prod/db TCP 2", true},
			{"dev/tool > prod/db TCP 3", true}, {"dev/web > prod/db TCP 3", false},
			{"prod/web > prod/db TCP 4", false}, {"dev/web > prod/db TCP 4", true},
			{"prod/web > prod/db TCP 5", true}, {"dev/web > prod/db TCP 5", false},
		}},
		{"ipBlock with except", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 172.17.0.0/16, except: [172.17.1.0/24]}}]}]}`}, []asked{
			{"172.17.0.9 > prod/db TCP 1", true}, {"172.17.1.9 > prod/db TCP 1", false}, {"172.18.0.9 > prod/db TCP 1", false}, {"2001:db8::7 > prod/db TCP 1", false},
		}},
		{"what one block excepts another may allow", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 172.17.0.0/16, except: [172.17.1.0/24]}}, {ipBlock: {cidr: 172.17.1.9/32}}]}]}`}, []asked{
			{"172.17.1.9 > prod/db TCP 1", true}, {"172.17.1.8 > prod/db TCP 1", false},
		}},
		{"ipBlocks are of one family", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}`}, []asked{
			{"203.0.113.7 > prod/db TCP 1", true}, {"2001:db8::7 > prod/db TCP 1", false}, {"::ffff:203.0.113.7 > prod/db TCP 1", true},
		}},
		{"ipBlocks hold for pods", []string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.1.0.0/16, except: [10.1.1.0/24]}}, {ipBlock: {cidr: "fd00:1:1::/64"}}]}]}`}, []asked{
			{"dev/web > prod/db TCP 1", true}, {"prod/web > prod/db TCP 1", false}, {"prod/web@fd00:1:1::2 > prod/db TCP 1", true}, {"prod/new > prod/db TCP 1", false},
		}},
		{"ports by number and protocol", []string{`{podSelector: {}, ingress: [{ports: [{port: 80}, {protocol: UDP, port: 53}, {protocol: SCTP}]}]}`}, []asked{
			{"203.0.113.7 > prod/db TCP 80", true}, {"203.0.113.7 > prod/db UDP 80", false}, {"203.0.113.7 > prod/db UDP 53", true},
			{"203.0.113.7 > prod/db TCP 53", false}, {"203.0.113.7 > prod/db SCTP 7", true}, {"203.0.113.7 > prod/db ICMP", false},
		}},
		{"a protocol that is not said is TCP", []string{`{podSelector: {}, ingress: [{ports: [{}]}]}`}, []asked{
			{"203.0.113.7 > prod/db TCP 80", true}, {"203.0.113.7 > prod/db UDP 80", false}, {"203.0.113.7 > prod/db ICMP", false},
		}},
		{"endPort", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 32000, endPort: 32768}]}]}`}, []asked{
			{"prod/web > 203.0.113.7 TCP 31999", false}, {"prod/web > 203.0.113.7 TCP 32000", true},
			{"prod/web > 203.0.113.7 TCP 32768", true}, {"prod/web > 203.0.113.7 TCP 32769", false}, {"prod/web > 203.0.113.7 UDP 32000", false},
		}},
		{"a name is a port of the destination: of the pod that is selected", []string{`{podSelector: {}, ingress: [{ports: [{port: http}]}]}`}, []asked{
			{"dev/web > prod/web TCP 8080", true}, {"dev/web > prod/web TCP 9000", false}, {"dev/web > prod/db TCP 9000", true},
			{"dev/web > prod/web UDP 8080", false}, {"dev/web > prod/new TCP 8080", false},
		}},
		{"a name is a port of the destination: of the peer", []string{`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: http}, {port: dns, protocol: UDP}]}]}`}, []asked{
			{"prod/db > prod/web TCP 8080", true}, {"prod/web > prod/db TCP 8080", false}, {"prod/web > prod/db TCP 9000", true},
			{"prod/db > prod/web UDP 53", true}, {"prod/db > prod/web TCP 53", false}, {"prod/web > 203.0.113.7 TCP 8080", false},
		}},
		{"a pod's own node is always allowed, however it is given", []string{`{podSelector: {}, policyTypes: [Ingress, Egress]}`}, []asked{
			{"node > prod/web TCP 80", true}, {"prod/web > node TCP 80", true}, {"172.30.0.1 > prod/web TCP 80", true},
			{"prod/web > 172.30.0.1 ICMP", true}, {"prod/host > prod/web TCP 80", true}, {"prod/web > prod/host TCP 80", true},
			{"172.30.0.2 > prod/web TCP 80", false}, {"prod/host-b > prod/web TCP 80", false}, {"172.30.0.2 > prod/db TCP 80", true}, {"prod/host > prod/db TCP 80", false},
			{"fd00:172:30::1 > prod/web TCP 80", true},
		}},
		{"who only bears a node's address is that address", []string{
			`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 172.30.0.0/24, except: [172.30.0.2/32]}}], ports: [{port: 80}]}]}`,
		}, []asked{
			{"masqueraded:172.30.0.1 > prod/web TCP 80", true}, {"masqueraded:172.30.0.1 > prod/web TCP 81", false}, {"172.30.0.1 > prod/web TCP 81", true},
			{"masqueraded:172.30.0.2 > prod/db TCP 80", false}, {"172.30.0.2 > prod/db TCP 80", true}, {"masqueraded:fd00:172:30::1 > prod/web TCP 80", false},
		}},
		{"a pod reaches itself", []string{`{podSelector: {}, policyTypes: [Ingress, Egress]}`}, []asked{
			{"prod/web > prod/web TCP 80", true}, {"prod/web > 10.1.1.2 TCP 80", true}, {"10.1.1.2 > prod/web TCP 80", true},
		}},
		{"pods in their node's network are not selected", []string{`{podSelector: {}, policyTypes: [Ingress, Egress]}`}, []asked{
			{"dev/web > prod/host TCP 80", true}, {"prod/host > dev/web TCP 80", true},
		}},
		{"pods in their node's network are addresses", []string{`{podSelector: {}, ingress: [{from: [{podSelector: {}}], ports: [{port: 1}]}, {from: [{ipBlock: {cidr: 172.30.0.0/24}}], ports: [{port: 2}]}]}`}, []asked{
			{"prod/host-b > prod/web TCP 1", false}, {"prod/host-b > prod/web TCP 2", true}, {"prod/host > prod/db TCP 1", false}, {"prod/host > prod/db TCP 2", true},
		}},
		{"ended pods do not exist, and another pod may have their address", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: x}}}]}]}`}, []asked{
			{"prod/ended > prod/db TCP 1", false}, {"10.1.1.9 > prod/db TCP 1", false}, {"dev/web > prod/ended TCP 1", true},
			{"prod/followed > prod/db TCP 1", true}, {"10.1.1.3 > prod/db TCP 1", true},
		}},
		{"an address of a pod is the pod", []string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: x}}}]}]}`}, []asked{
			{"10.1.2.3 > prod/db TCP 1", true}, {"fd00:1:2::3 > 10.1.2.2 TCP 1", true}, {"10.1.1.2 > 10.1.2.2 TCP 1", false},
		}},
		{"a policy that is wrong closes the pods that it selects", []string{
			`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 99999}]}]} # wrong`,
			`{podSelector: {}, ingress: [{}]}`,
		}, []asked{
			{"dev/web > prod/web TCP 80", false}, {"dev/web > prod/db TCP 80", true}, {"node > prod/web TCP 80", true}, {"prod/web > dev/web TCP 80", true},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := with(t, c.policies...)
			for _, a := range c.asked {
				v := Evaluate(s, traffic(t, a.traffic))
				if v.Err != nil || v.Allowed != a.allowed {
					t.Errorf("%s is allowed: %t, expected %t\n%s", a.traffic, v.Allowed, a.allowed, strings.Join(v.Explain(), "\n"))
				}
			}
		})
	}
}

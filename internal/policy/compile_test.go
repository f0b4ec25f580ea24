package policy

import "testing"

// What the documentation of the API says of whom a NetworkPolicy is for, and of what it is about.
//
// https://kubernetes.io/docs/reference/kubernetes-api/policy-resources/network-policy-v1/
// https://kubernetes.io/docs/concepts/services-networking/network-policies/
func TestIsolation(t *testing.T) {
	runCases(t, []testCase{
		{
			name: "without policies everything is allowed",
			want: `
				web < client TCP/80: yes
				web > 203.0.113.1 UDP/53: yes`,
		},
		{
			name:     "default deny of ingress: policyTypes defaults to Ingress",
			policies: `podSelector: {}`,
			want: `
				web < client TCP/80: no
				web < db TCP/80: no
				web < 203.0.113.1 UDP/53: no
				web < db ICMP: no
				web > client TCP/80: yes
				client < web TCP/80: no
				web/6 < client/6 TCP/80: no
				bank/teller < web TCP/80: yes`,
		},
		{
			name:     "policyTypes default to both if there are rules for egress",
			policies: `{podSelector: {}, egress: [{}]}`,
			want: `
				web < client TCP/80: no
				web > client TCP/80: a
				web > 203.0.113.1 ICMP: a`,
		},
		{
			name:     "rules of a direction that policyTypes leaves out are not in force",
			policies: `{podSelector: {}, policyTypes: [Ingress], egress: [{to: [{podSelector: {}}]}]}`,
			want: `
				web < client TCP/80: no
				web > 203.0.113.1 TCP/80: yes`,
		},
		{
			name:     "default deny of egress",
			policies: `{podSelector: {}, policyTypes: [Egress]}`,
			want: `
				web < client TCP/80: yes
				web > client TCP/80: no
				web > 203.0.113.1 UDP/53: no`,
		},
		{
			name:     "default deny of both",
			policies: `{podSelector: {}, policyTypes: [Ingress, Egress]}`,
			want: `
				web < client TCP/80: no
				web > client TCP/80: no`,
		},
		{
			name:     "allow all ingress: an empty rule",
			policies: `{podSelector: {}, ingress: [{}]}`,
			want: `
				web < client TCP/80: a
				web < 203.0.113.1 SCTP/5: a
				web < 203.0.113.1 ICMP: a
				web/6 < bank/client/6 UDP/80: a`,
		},
		{
			name: "only pods that the selector selects are isolated, and only in the policy's namespace",
			policies: `
podSelector: {matchLabels: {app: web}}
---
podSelector: {matchLabels: {app: teller}}`,
			want: `
				web < client TCP/80: no
				client < web TCP/80: yes
				bank/teller < client TCP/80: yes`,
		},
		{
			name: "policies add up",
			policies: `
{podSelector: {}}
---
{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}
---
{podSelector: {matchLabels: {tier: front}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 81}]}]}`,
			want: `
				web < client TCP/80: b
				web < client TCP/81: no
				web < db TCP/80: no
				web < db TCP/81: c
				client < web TCP/80: no`,
		},
		{
			name: "both ends have to allow it, each judged by its own policies",
			policies: `
{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}
---
{podSelector: {matchLabels: {app: web}}}`,
			want: `
				client > web TCP/80: a
				web < client TCP/80: no
				client > db TCP/80: no`,
		},
		{
			name:     "the node reaches its pods and is reached by them",
			policies: `{podSelector: {}, policyTypes: [Ingress, Egress]}`,
			want: `
				web < 192.168.60.11 TCP/80: yes
				web > 192.168.60.11 UDP/53: yes
				web < 192.168.60.12 TCP/80: no`,
		},
	})
}

// Peers: who they are.
func TestPeers(t *testing.T) {
	ingressFrom := func(peers string) string {
		return "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [" + peers + "]}]}"
	}
	runCases(t, []testCase{
		{
			name:     "podSelector: pods of the policy's namespace",
			policies: ingressFrom(`{podSelector: {matchLabels: {app: client}}}`),
			want: `
				web < client TCP/80: a
				web < bank/client TCP/80: no
				web < db TCP/80: no
				web/6 < client/6 TCP/80: a
				web/6 < bank/client/6 TCP/80: no
				web < 203.0.113.1 TCP/80: no`,
		},
		{
			name:     "an empty podSelector: all pods of the policy's namespace, and of no other",
			policies: ingressFrom(`{podSelector: {}}`),
			want: `
				web < client TCP/80: a
				web < db TCP/80: a
				web < bank/client TCP/80: no
				web < 203.0.113.1 TCP/80: no`,
		},
		{
			name:     "namespaceSelector: all pods of namespaces",
			policies: ingressFrom(`{namespaceSelector: {matchLabels: {team: money}}}`),
			want: `
				web < client TCP/80: no
				web < bank/client TCP/80: a
				web < bank/teller TCP/80: a
				web < 203.0.113.1 TCP/80: no`,
		},
		{
			name:     "an empty namespaceSelector: all pods of all namespaces, and nobody else",
			policies: ingressFrom(`{namespaceSelector: {}}`),
			want: `
				web < client TCP/80: a
				web < bank/client TCP/80: a
				web/6 < bank/client/6 TCP/80: a
				web < 203.0.113.1 TCP/80: no
				web < 192.168.60.12 TCP/80: no
				web < 10.1.2.9 TCP/80: no`,
		},
		{
			name:     "both in one peer: such pods in such namespaces",
			policies: ingressFrom(`{namespaceSelector: {matchLabels: {team: money}}, podSelector: {matchLabels: {app: client}}}`),
			want: `
				web < client TCP/80: no
				web < bank/client TCP/80: a
				web < bank/teller TCP/80: no`,
		},
		{
			name:     "both as two peers: either",
			policies: ingressFrom(`{namespaceSelector: {matchLabels: {team: money}}}, {podSelector: {matchLabels: {app: client}}}`),
			want: `
				web < client TCP/80: a
				web < bank/client TCP/80: a
				web < bank/teller TCP/80: a
				web < db TCP/80: no`,
		},
		{
			name:     "an empty namespaceSelector with a podSelector: such pods wherever",
			policies: ingressFrom(`{namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}`),
			want: `
				web < client TCP/80: a
				web < bank/client TCP/80: a
				web < bank/teller TCP/80: no`,
		},
		{
			name:     "the namespace's name is a label that every namespace has",
			policies: ingressFrom(`{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: bank}}}`),
			want: `
				web < bank/client TCP/80: a
				web < client TCP/80: no`,
		},
		{
			name:     "a namespace without object has its name too",
			policies: ingressFrom(`{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: lost}}}`),
			more: `
kind: Pod
metadata: {namespace: lost, name: p}
status: {podIPs: [{ip: 10.1.2.20}]}`,
			want: `
				web < lost/p TCP/80: a
				web < client TCP/80: no`,
		},
		{
			name:     "matchExpressions: In",
			policies: ingressFrom(`{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: In, values: [db, teller, db]}]}}`),
			want: `
				web < db TCP/80: a
				web < bank/teller TCP/80: a
				web < client TCP/80: no`,
		},
		{
			name:     "matchExpressions: NotIn is met without the label too",
			policies: ingressFrom(`{namespaceSelector: {}, podSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [back]}]}}`),
			want: `
				web < db TCP/80: no
				web < client TCP/80: a
				web < 203.0.113.1 TCP/80: no`,
		},
		{
			name:     "matchExpressions: Exists",
			policies: ingressFrom(`{namespaceSelector: {}, podSelector: {matchExpressions: [{key: role, operator: Exists}]}}`),
			want: `
				web < bank/client TCP/80: a
				web < client TCP/80: no`,
		},
		{
			name:     "matchExpressions: DoesNotExist",
			policies: ingressFrom(`{namespaceSelector: {}, podSelector: {matchExpressions: [{key: role, operator: DoesNotExist}]}}`),
			want: `
				web < bank/client TCP/80: no
				web < client TCP/80: a`,
		},
		{
			name:     "all requirements have to be met",
			policies: ingressFrom(`{namespaceSelector: {matchExpressions: [{key: level, operator: In, values: [low, high]}]}, podSelector: {matchLabels: {app: client}, matchExpressions: [{key: role, operator: Exists}]}}`),
			want: `
				web < bank/client TCP/80: a
				web < client TCP/80: no`,
		},
		{
			name:     "selectors never select pods in their node's network, nor pods that have ended",
			policies: ingressFrom(`{podSelector: {matchLabels: {app: client}}}`),
			want: `
				web < 192.168.60.12 TCP/80: no
				web < 10.1.2.9 TCP/80: no`,
		},
		{
			name:     "egress goes by the same selectors",
			policies: `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}, {namespaceSelector: {matchLabels: {team: money}}}]}]}`,
			want: `
				web > db TCP/80: a
				web > bank/teller TCP/80: a
				web > client TCP/80: no
				web > 203.0.113.1 TCP/80: no
				web < client TCP/80: yes`,
		},
	})
}

// ipBlocks, whose addresses are what comes and goes: those of pods too.
func TestBlocks(t *testing.T) {
	from := func(peers string) string {
		return "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [" + peers + "]}]}"
	}
	runCases(t, []testCase{
		{
			name:     "a prefix and what it excepts",
			policies: from(`{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.64/26]}}`),
			want: `
				web < 203.0.113.1 TCP/80: a
				web < 203.0.113.65 TCP/80: no
				web < 203.0.113.128 TCP/80: a
				web < 203.0.114.1 TCP/80: no
				web < client TCP/80: no`,
		},
		{
			name:     "a single address",
			policies: from(`{ipBlock: {cidr: 203.0.113.7/32}}, {ipBlock: {cidr: '2001:db8::7/128'}}`),
			want: `
				web < 203.0.113.7 TCP/80: a
				web < 203.0.113.6 TCP/80: no
				web/6 < 2001:db8::7 TCP/80: a
				web/6 < 2001:db8::8 TCP/80: no`,
		},
		{
			name:     "an excepted single address",
			policies: from(`{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.7/32]}}`),
			want: `
				web < 203.0.113.7 TCP/80: no
				web < 203.0.113.6 TCP/80: a`,
		},
		{
			name:     "everything of a family, but not of the other",
			policies: from(`{ipBlock: {cidr: 0.0.0.0/0}}`),
			want: `
				web < 203.0.113.1 TCP/80: a
				web < client TCP/80: a
				web < 192.168.60.12 TCP/80: a
				web/6 < 2001:db8::1 TCP/80: no
				web/6 < client/6 TCP/80: no`,
		},
		{
			name:     "everything but something",
			policies: from(`{ipBlock: {cidr: 0.0.0.0/0, except: [10.1.1.0/24, 203.0.113.0/24]}}`),
			want: `
				web < 198.51.100.1 TCP/80: a
				web < 203.0.113.1 TCP/80: no
				web < client TCP/80: no
				web < db TCP/80: a
				web/6 < client/6 TCP/80: no`,
		},
		{
			name:     "blocks are about the addresses of pods too",
			policies: from(`{ipBlock: {cidr: 10.1.2.0/24, except: [10.1.2.3/32]}}`),
			want: `
				web < db TCP/80: a
				web < bank/client TCP/80: no
				web < client TCP/80: no`,
		},
		{
			name:     "a pod by its address",
			policies: from(`{ipBlock: {cidr: 10.1.2.2/32}}`),
			want: `
				web < db TCP/80: a
				web < client TCP/80: no
				web < 10.1.2.4 TCP/80: no`,
		},
		{
			name:     "what one block excepts may be in another",
			policies: from(`{ipBlock: {cidr: 203.0.0.0/16, except: [203.0.113.0/24]}}, {ipBlock: {cidr: 203.0.113.64/26, except: [203.0.113.65/32]}}`),
			want: `
				web < 203.0.1.1 TCP/80: a
				web < 203.0.113.1 TCP/80: no
				web < 203.0.113.66 TCP/80: a
				web < 203.0.113.65 TCP/80: no`,
		},
		{
			name:     "a block within another, whose exception does not cut the outer one",
			policies: from(`{ipBlock: {cidr: 203.0.0.0/16}}, {ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.64/26, 203.0.113.64/27]}}`),
			want: `
				web < 203.0.113.1 TCP/80: a
				web < 203.0.113.65 TCP/80: a`,
		},
		{
			name:     "exceptions within each other count once",
			policies: from(`{ipBlock: {cidr: 203.0.0.0/16, except: [203.0.113.64/26, 203.0.113.0/24, 203.0.113.0/24]}}, {ipBlock: {cidr: 203.0.113.64/27}}`),
			want: `
				web < 203.0.113.65 TCP/80: a
				web < 203.0.113.97 TCP/80: no
				web < 203.0.113.1 TCP/80: no
				web < 203.0.112.1 TCP/80: a`,
		},
		{
			name: "blocks of several rules with ports of their own",
			policies: `{podSelector: {matchLabels: {app: web}}, ingress: [
  {from: [{ipBlock: {cidr: 203.0.0.0/16}}], ports: [{port: 80}]},
  {from: [{ipBlock: {cidr: 203.0.113.0/24}}], ports: [{port: 81}]},
  {from: [{ipBlock: {cidr: 203.0.112.0/23, except: [203.0.113.128/25]}}], ports: [{port: 82}]}]}`,
			want: `
				web < 203.0.1.1 TCP/80: a
				web < 203.0.1.1 TCP/81: no
				web < 203.0.112.1 TCP/82: a
				web < 203.0.112.1 TCP/81: no
				web < 203.0.113.1 TCP/80: a
				web < 203.0.113.1 TCP/81: a
				web < 203.0.113.1 TCP/82: a
				web < 203.0.113.129 TCP/81: a
				web < 203.0.113.129 TCP/82: no`,
		},
		{
			name:     "bits behind the prefix mean nothing",
			policies: from(`{ipBlock: {cidr: 203.0.113.77/24}}`),
			want:     `web < 203.0.113.1 TCP/80: a`,
		},
		{
			name:     "the families of a rule stay apart: one without blocks of a family is met by nobody of it",
			policies: from(`{ipBlock: {cidr: 'fd00:2::/64'}}`),
			want: `
				web/6 < db/6 TCP/80: a
				web/6 < client/6 TCP/80: no
				web < db TCP/80: no`,
		},
		{
			name:     "egress to blocks",
			policies: `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24}}], ports: [{port: 443}]}]}`,
			want: `
				web > 203.0.113.1 TCP/443: a
				web > 203.0.113.1 TCP/80: no
				web > 198.51.100.1 TCP/443: no`,
		},
	})
}

// Ports and protocols.
func TestPorts(t *testing.T) {
	ports := func(ports string) string {
		return "{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [" + ports + "]}]}"
	}
	egress := func(rule string) string {
		return "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [" + rule + "]}"
	}
	runCases(t, []testCase{
		{
			name:     "a number; the protocol is TCP by default",
			policies: ports(`{port: 80}`),
			want: `
				web < client TCP/80: a
				web < 203.0.113.1 TCP/80: a
				web < client TCP/81: no
				web < client UDP/80: no
				web < client ICMP: no`,
		},
		{
			name:     "UDP and SCTP",
			policies: ports(`{protocol: UDP, port: 53}, {protocol: SCTP, port: 7}`),
			want: `
				web < client UDP/53: a
				web < client TCP/53: no
				web < client SCTP/7: a
				web < client SCTP/53: no`,
		},
		{
			name:     "no port: all of the protocol",
			policies: ports(`{protocol: UDP}`),
			want: `
				web < client UDP/1: a
				web < client UDP/65535: a
				web < client TCP/1: no
				web < client ICMP: no`,
		},
		{
			name:     "endPort: a range with both ends",
			policies: ports(`{port: 32000, endPort: 32768}`),
			want: `
				web < client TCP/31999: no
				web < client TCP/32000: a
				web < client TCP/32767: a
				web < client TCP/32768: a
				web < client TCP/32769: no
				web < client UDP/32000: no`,
		},
		{
			name:     "a range of all ports there are",
			policies: ports(`{port: 1, endPort: 65535}`),
			want: `
				web < client TCP/1: a
				web < client TCP/65535: a
				web < client UDP/1: no`,
		},
		{
			name:     "a name: the number that it has in the pod, for its protocol",
			policies: ports(`{port: http}, {protocol: UDP, port: dns}, {port: metrics}`),
			want: `
				web < client TCP/8080: a
				web < client UDP/53: a
				web < client TCP/53: no
				web < client TCP/9100: a
				web < client TCP/80: no`,
		},
		{
			name:     "a name that the pod does not have, or for another protocol, allows nothing",
			policies: ports(`{port: https}, {port: dns}`),
			want: `
				web < client TCP/53: no
				web < client UDP/53: no
				web < client TCP/443: no`,
		},
		{
			name:     "the same name has other numbers in other pods",
			policies: `{podSelector: {}, ingress: [{ports: [{port: http}]}]}`,
			more: `
kind: Pod
metadata: {namespace: shop, name: other, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 80}]}]}
status: {podIPs: [{ip: 10.1.1.9}]}`,
			want: `
				web < client TCP/8080: a
				web < client TCP/80: no
				other < client TCP/80: a
				other < client TCP/8080: no
				client < web TCP/80: no`,
		},
		{
			name:     "egress by name: the number is the destination's",
			policies: egress(`{ports: [{port: http}]}`),
			want: `
				web > db TCP/8081: a
				web > db TCP/8080: no
				web > bank/client TCP/9090: a
				web > bank/client TCP/8081: no
				web > client TCP/8080: no
				web > 203.0.113.1 TCP/8081: no
				web > 192.168.60.12 TCP/8082: no
				web/6 > db/6 TCP/8081: a`,
		},
		{
			name:     "egress by name to selected pods, with a number beside it",
			policies: egress(`{to: [{podSelector: {}}], ports: [{port: http}, {port: 7000}]}, {to: [{ipBlock: {cidr: 10.1.2.3/32}}], ports: [{port: http}]}`),
			want: `
				web > db TCP/8081: a
				web > db TCP/7000: a
				web > client TCP/7000: a
				web > bank/client TCP/9090: a
				web > bank/client TCP/7000: no
				web > bank/teller TCP/9091: no`,
		},
		{
			name:     "both ports and peers have to match, in the same rule",
			policies: `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}, {from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 81}]}]}`,
			want: `
				web < client TCP/80: a
				web < client TCP/81: no
				web < db TCP/81: a
				web < db TCP/80: no`,
		},
		{
			name:     "ranges that overlap or touch",
			policies: ports(`{port: 10, endPort: 20}, {port: 15, endPort: 30}, {port: 31}, {port: 40}`),
			want: `
				web < client TCP/9: no
				web < client TCP/10: a
				web < client TCP/20: a
				web < client TCP/31: a
				web < client TCP/32: no
				web < client TCP/40: a`,
		},
		{
			name: "of policies that allow the same the first by name is told of",
			policies: `
{podSelector: {}, ingress: [{ports: [{port: 80, endPort: 90}]}]}
---
{podSelector: {}, ingress: [{ports: [{port: 85, endPort: 95}, {protocol: UDP, port: 53}]}]}
---
{podSelector: {}, ingress: [{ports: [{protocol: TCP}, {protocol: UDP, port: 53}]}]}
---
{podSelector: {}, ingress: [{}]}`,
			want: `
				web < client TCP/80: a
				web < client TCP/90: a
				web < client TCP/91: b
				web < client TCP/95: b
				web < client TCP/96: c
				web < client UDP/53: b
				web < client UDP/54: d
				web < client ICMP: d`,
		},
		{
			name: "whatever is more exact",
			policies: `
{podSelector: {}, ingress: [{ports: [{protocol: TCP}]}]}
---
{podSelector: {}, ingress: [{ports: [{port: 80}]}]}
---
{podSelector: {}, ingress: [{ports: [{protocol: UDP, port: 53}]}, {}]}`,
			want: `
				web < client TCP/80: a
				web < client UDP/53: c
				web < client UDP/54: c`,
		},
	})
}

package policy

import "testing"

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
			name: "of policies that allow the same the first by name is reported",
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
			name: "the more specific port",
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

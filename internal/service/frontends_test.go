package service

import "testing"

// Types of Services and their frontends.
//
// https://kubernetes.io/docs/concepts/services-networking/service/
func TestFrontends(t *testing.T) {
	runCases(t, []testCase{
		{
			name:    "ClusterIP: all ready endpoints from inside, nothing from the wire",
			service: `spec: {clusterIPs: [10.96.0.9], ports: [{name: http, port: 80}]}`,
			want:    `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | pass`,
		},
		{
			name:    "clusterIP alone, as old API servers have it",
			service: `spec: {clusterIP: 10.96.0.9, ports: [{name: http, port: 80}]}`,
			want:    `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | pass`,
		},
		{
			name:    "dual stack: each address has the endpoints of its family",
			service: `spec: {clusterIPs: [10.96.0.9, 'fd00:96::9'], ipFamilyPolicy: RequireDualStack, ports: [{name: http, port: 80}]}`,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | pass
				http ClusterIP [fd00:96::9]:80/TCP | [fd00:1::2]:8080 [fd00:2::2]:8080 [fd00:2::3]:8080 | pass`,
		},
		{
			name:    "dual stack, and only one family has endpoints",
			service: `spec: {clusterIPs: ['fd00:96::9', 10.96.0.9], ports: [{name: http, port: 80}]}`,
			slices: `
addressType: IPv6
ports: [{name: http, port: 8080}]
endpoints: [{addresses: ['fd00:1::2'], nodeName: n1}]`,
			want: `
				http ClusterIP [fd00:96::9]:80/TCP | [fd00:1::2]:8080 | pass
				http ClusterIP 10.96.0.9:80/TCP | refuse | pass`,
		},
		{name: "headless: nothing", service: `spec: {clusterIP: None, clusterIPs: [None], ports: [{name: http, port: 80}]}`},
		{name: "ExternalName: nothing", service: `spec: {type: ExternalName, externalName: example.org, ports: [{name: http, port: 80}]}`},
		{
			name:    "without endpoints: rejects",
			service: `spec: {type: NodePort, clusterIPs: [10.96.0.9], ports: [{name: http, port: 80, nodePort: 30080}]}`,
			slices:  "addressType: IPv4\nports: [{name: http, port: 8080}]\nendpoints: []",
			want: `
				http ClusterIP 10.96.0.9:80/TCP | refuse | pass
				http NodePort 192.168.60.11:30080/TCP | refuse | refuse
				http NodePort [fd00:60::11]:30080/TCP | refuse | refuse`,
		},
		{
			name:    "NodePort: on the given addresses of the node, with the endpoints of the address's family",
			service: `spec: {type: NodePort, clusterIPs: [10.96.0.9], ports: [{name: http, port: 80, nodePort: 30080}]}`,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | pass
				http NodePort 192.168.60.11:30080/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | maglev 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080
				http NodePort [fd00:60::11]:30080/TCP | [fd00:1::2]:8080 [fd00:2::2]:8080 [fd00:2::3]:8080 | maglev [fd00:1::2]:8080 [fd00:2::2]:8080 [fd00:2::3]:8080`,
		},
		{
			name:    "NodePort on a loopback address: not from the wire",
			node:    func(n *NodeConfig) { n.NodePortAddresses = n.HostPortAddresses[2:] },
			service: `spec: {type: NodePort, ports: [{name: http, port: 80, nodePort: 30080}]}`,
			want:    `http NodePort 127.0.0.1:30080/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | pass`,
		},
		{
			name: "LoadBalancer: also on the addresses of its status that arrive as they are",
			service: `spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.80}, {ip: 198.51.100.81, ipMode: Proxy}, {ip: 'fd00:99::1', ipMode: VIP}, {hostname: lb.example}]}}`,
			want: `
				http LoadBalancer 198.51.100.80:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | maglev 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080
				http LoadBalancer [fd00:99::1]:80/TCP | [fd00:1::2]:8080 [fd00:2::2]:8080 [fd00:2::3]:8080 | maglev [fd00:1::2]:8080 [fd00:2::2]:8080 [fd00:2::3]:8080`,
		},
		{
			name: "allocateLoadBalancerNodePorts=false: no NodePort",
			service: `spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, clusterIPs: [10.96.0.9], ports: [{name: http, port: 80}]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.80}]}}`,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | pass
				http LoadBalancer 198.51.100.80:80/TCP | 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080 | maglev 10.1.1.2:8080 10.1.2.2:8080 10.1.2.3:8080`,
		},
		{
			name: "loadBalancerSourceRanges: of the address's family, not for the NodePort",
			service: `spec: {type: LoadBalancer, loadBalancerSourceRanges: [203.0.113.0/24, ' 2001:db8::/32', 198.51.100.7/32, 203.0.113.0/24], ports: [{name: http, port: 80, nodePort: 30080}]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.80}, {ip: 'fd00:99::1'}]}}`,
			slices: onePod,
			want: `
				http LoadBalancer 198.51.100.80:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080 | only 203.0.113.0/24 198.51.100.7/32
				http LoadBalancer [fd00:99::1]:80/TCP | refuse | refuse | only 2001:db8::/32
				http NodePort 192.168.60.11:30080/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080
				http NodePort [fd00:60::11]:30080/TCP | refuse | refuse`,
		},
		{
			name: "loadBalancerSourceRanges: everything, or only the other family's",
			service: `spec: {type: LoadBalancer, loadBalancerSourceRanges: [203.0.113.0/24, 0.0.0.0/0], ports: [{name: http, port: 80}]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.80}, {ip: 'fd00:99::1'}]}}`,
			slices: onePod,
			want: `
				http LoadBalancer 198.51.100.80:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080
				http LoadBalancer [fd00:99::1]:80/TCP | refuse | refuse`,
		},
		{
			name:    "externalIPs: whatever the type",
			service: `spec: {clusterIPs: [10.96.0.9], externalIPs: [198.51.100.32], ports: [{name: http, port: 80}]}`,
			slices:  onePod,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080`,
		},
		{
			name: "a duplicate address is one frontend, and keeps its sources",
			service: `spec: {type: LoadBalancer, loadBalancerSourceRanges: [203.0.113.0/24], externalIPs: [198.51.100.80, 198.51.100.80], ports: [{name: http, port: 80}]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.80}]}}`,
			slices: onePod,
			want:   `http LoadBalancer 198.51.100.80:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080 | only 203.0.113.0/24`,
		},
		{
			name: "DSR: for the nodes' own addresses",
			node: func(n *NodeConfig) { n.DSR = true; n.NodePortAddresses = n.HostPortAddresses },
			service: `spec: {type: LoadBalancer, clusterIPs: [10.96.0.9], externalIPs: [198.51.100.32], ports: [{name: http, port: 80, nodePort: 30080}]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.80}]}}`,
			slices: onePod,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				http LoadBalancer 198.51.100.80:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080
				http NodePort 192.168.60.11:30080/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080 | DSR
				http NodePort [fd00:60::11]:30080/TCP | refuse | refuse | DSR
				http NodePort 127.0.0.1:30080/TCP | 10.1.1.2:8080 | pass
				http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080`,
		},
		{
			name:    "DSR: not with affinity",
			node:    func(n *NodeConfig) { n.DSR = true },
			service: `spec: {externalIPs: [198.51.100.32], sessionAffinity: ClientIP, ports: [{name: http, port: 80}]}`,
			slices:  onePod,
			want:    `http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080 | affinity 3h0m0s`,
		},
		{
			name:    "DSR: not with externalTrafficPolicy Local, which involves no other node",
			node:    func(n *NodeConfig) { n.DSR = true },
			service: `spec: {externalIPs: [198.51.100.32], externalTrafficPolicy: Local, ports: [{name: http, port: 80}]}`,
			slices:  onePod,
			want:    `http ExternalIP 198.51.100.32:80/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080`,
		},
	})
}

const onePod = `
addressType: IPv4
ports: [{name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}]
endpoints: [{addresses: [10.1.1.2], nodeName: n1}]`

// Ports, and their names.
//
// https://kubernetes.io/docs/concepts/services-networking/service/#field-spec-ports
func TestPorts(t *testing.T) {
	runCases(t, []testCase{
		{
			name:    "several ports: each has its own endpoints' port",
			service: `spec: {clusterIPs: [10.96.0.9], ports: [{name: http, port: 80, targetPort: 8080}, {name: dns, port: 53, protocol: UDP, targetPort: dns}]}`,
			slices:  onePod,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				dns ClusterIP 10.96.0.9:53/UDP | 10.1.1.2:5353 | pass`,
		},
		{
			name:    "one port needs no name",
			service: `spec: {clusterIPs: [10.96.0.9], ports: [{port: 9}]}`,
			want:    `- ClusterIP 10.96.0.9:9/TCP | 10.1.1.2:9 10.1.2.2:9 10.1.2.3:9 | pass`,
		},
		{
			name:    "a port is found by its name, not by its number",
			service: `spec: {clusterIPs: [10.96.0.9], ports: [{name: web, port: 8080, targetPort: 8080}]}`,
			want:    `web ClusterIP 10.96.0.9:8080/TCP | refuse | pass`,
		},
		{
			name:    "a port of that name and another protocol is another port",
			service: `spec: {clusterIPs: [10.96.0.9], ports: [{name: http, port: 80, protocol: UDP}]}`,
			want:    `http ClusterIP 10.96.0.9:80/UDP | refuse | pass`,
		},
		{
			name:    "a named targetPort may be another number in other pods: they are in other slices",
			service: `spec: {clusterIPs: [10.96.0.9], ports: [{name: http, port: 80, targetPort: web}]}`,
			slices: `
addressType: IPv4
ports: [{name: http, port: 9090}]
endpoints: [{addresses: [10.1.1.2], nodeName: n1}]
---
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.2.2], nodeName: n2}]`,
			want: `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:9090 10.1.2.2:8080 | pass`,
		},
		{
			name:    "one number for two protocols",
			service: `spec: {type: NodePort, ports: [{name: http, port: 53, nodePort: 30053}, {name: dns, port: 53, protocol: UDP, nodePort: 30053}]}`,
			node:    func(n *NodeConfig) { n.NodePortAddresses = n.NodePortAddresses[:1] },
			slices:  onePod,
			want: `
				http NodePort 192.168.60.11:30053/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080
				dns NodePort 192.168.60.11:30053/UDP | 10.1.1.2:5353 | maglev 10.1.1.2:5353`,
		},
		{
			name:    "SCTP: one number for three protocols",
			service: `spec: {type: NodePort, clusterIPs: [10.96.0.9], ports: [{name: sig, port: 80, nodePort: 30080, protocol: SCTP}, {name: http, port: 80}, {name: dns, port: 80, protocol: UDP}]}`,
			node:    func(n *NodeConfig) { n.NodePortAddresses = n.NodePortAddresses[:1] },
			slices: `
addressType: IPv4
ports: [{name: sig, port: 36412, protocol: SCTP}, {name: http, port: 8080}, {name: dns, port: 5353, protocol: UDP}]
endpoints: [{addresses: [10.1.1.2], nodeName: n1}]`,
			want: `
				sig ClusterIP 10.96.0.9:80/SCTP | 10.1.1.2:36412 | pass
				sig NodePort 192.168.60.11:30080/SCTP | 10.1.1.2:36412 | maglev 10.1.1.2:36412
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				dns ClusterIP 10.96.0.9:80/UDP | 10.1.1.2:5353 | pass`,
		},
		{
			name:    "the same number twice",
			service: `spec: {clusterIPs: [10.96.0.9], ports: [{name: http, port: 80}, {name: more, port: 80}]}`,
			slices:  onePod,
			want:    `http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass`,
			problems: `
				Service shop/web: port more (80/TCP): has the same number as port http (80/TCP)`,
		},
		{
			name:    "the same NodePort twice",
			node:    func(n *NodeConfig) { n.NodePortAddresses = n.NodePortAddresses[:1] },
			service: `spec: {type: NodePort, clusterIPs: [10.96.0.9], ports: [{name: http, port: 80, nodePort: 30080}, {name: more, port: 81, nodePort: 30080}]}`,
			slices:  onePod,
			want: `
				http ClusterIP 10.96.0.9:80/TCP | 10.1.1.2:8080 | pass
				http NodePort 192.168.60.11:30080/TCP | 10.1.1.2:8080 | maglev 10.1.1.2:8080
				more ClusterIP 10.96.0.9:81/TCP | refuse | pass`,
			problems: `Service shop/web: port more (81/TCP): NodePort 30080/TCP is that of port http (80/TCP)`,
		},
		{
			name:    "all ports of a slice (a null port): no Service has that",
			service: `spec: {clusterIPs: [10.96.0.9], ports: [{name: http, port: 80}]}`,
			slices:  "addressType: IPv4\nports: [{name: http}]\nendpoints: [{addresses: [10.1.1.2]}]",
			want:    `http ClusterIP 10.96.0.9:80/TCP | refuse | pass`,
		},
	})
}

package policy

import "testing"

// ipBlocks, which match addresses, also those of pods.
func TestBlocks(t *testing.T) {
	from := func(peers string) string {
		return "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [" + peers + "]}]}"
	}
	runCases(t, []testCase{
		{
			name:     "a prefix and its exceptions",
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
			name:     "everything with an exception",
			policies: from(`{ipBlock: {cidr: 0.0.0.0/0, except: [10.1.1.0/24, 203.0.113.0/24]}}`),
			want: `
				web < 198.51.100.1 TCP/80: a
				web < 203.0.113.1 TCP/80: no
				web < client TCP/80: no
				web < db TCP/80: a
				web/6 < client/6 TCP/80: no`,
		},
		{
			name:     "blocks match the addresses of pods, too",
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
			name:     "an exception of one block may be in another",
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
			name:     "host bits are ignored",
			policies: from(`{ipBlock: {cidr: 203.0.113.77/24}}`),
			want:     `web < 203.0.113.1 TCP/80: a`,
		},
		{
			name:     "the families of a rule are separate: without blocks of a family it matches no address of it",
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

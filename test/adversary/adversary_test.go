package adversary

import (
	"os"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// attacks are the rows that run in every configuration.
func attacks() []attack {
	return slices.Concat(plain, forgedSources(), forgedAddresses, forgedMACs(), neighbours, midstreamRows(), segments, fragments, extensions, options, icmpAttacks, paths,
		indirectRows(), hairpins(forged, spoofed), tunnelRows(), links, lengths, offloads)
}

// briefRows are those that depend most on the kinds of the pods.
func briefRows() []attack { return slices.Concat(plain, forgedSources(), forgedMACs()) }

// configuration is a set of agent flags that the table runs with.
type configuration struct {
	name  string
	flags []string
	// noAgent kills the agents first: the datapath must enforce policies without them.
	noAgent bool
	// tunnelled: nodes are joined by tunnels. dsr: backends reply directly to clients of NodePorts.
	tunnelled, dsr bool
	// kubeProxy: nftables rules translate Services, as those of kube-proxy do. Only rows that depend on this run:
	// egress policy is not enforced on packets that the kernel stack translates.
	kubeProxy bool
	// attackers and victims are the kinds of the pods that attack and are attacked.
	attackers, victims podKind
	// brief: only a few rows run, without scenarios.
	brief bool
	// byNode: pods on the nodes' link send all frames to the node's MAC, not to that of the destination.
	byNode bool
}

// allNodePorts enables NodePorts at the nodes' second addresses too.
const allNodePorts = "--nodeport-addresses=192.168.77.0/24,fd77::/64"

// wholeLink keeps pods' addresses on the nodes' link: without an API server, a node does not know which of the link's
// addresses are pods of other nodes, and replaces the sources of packets to external hosts.
const wholeLink = "--non-masquerade-cidrs=192.168.77.0/24,fd77::/64"

// configurations run one after the other in one lab.
var configurations = []configuration{
	{name: "flows off", flags: []string{"--flows=off"}},
	{name: "no agent", flags: []string{"--flows=off"}, noAgent: true},
	{name: "flows of all pods", flags: []string{"--flows=all"}},
	{name: "no agent, flows of all pods", flags: []string{"--flows=all"}, noAgent: true},
	{name: "tunnel", flags: []string{"--flows=all", "--tunnel=vxlan", allNodePorts}, tunnelled: true},
	{name: "kernel routing", flags: []string{"--flows=off", "--routing=kernel"}},
	{name: "DSR", flags: []string{"--flows=off", "--nodeport-mode=dsr", allNodePorts}, dsr: true},
	{name: "kube-proxy, tunnel", flags: []string{"--flows=off", "--services=kube-proxy", "--tunnel=vxlan"}, tunnelled: true, kubeProxy: true},
}

// shuffle, in a campaign (a seed is set), starts at random ports and identifiers and runs the rows in random order:
// state that one row leaves in the maps may let another row through. CI keeps the order of the table.
func shuffle(t *testing.T, l *lab, all ...[]attack) {
	if os.Getenv(testenv.SeedVariable) == "" {
		return
	}
	random := testenv.Rand(t)
	const most = 1 << 20 // so that tokens do not wrap around
	l.tokens = random.Uint32N(most)
	for _, rows := range all {
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	}
}

func TestAttacks(t *testing.T) { testAttacks(t, []podKind{ofRange}, configurations) }

// macvlanConfigurations are those of macvlan pods.
var macvlanConfigurations = []configuration{
	{name: "flows off", flags: []string{"--flows=off"}, attackers: onLink, victims: onLink},
	{name: "by the node", flags: []string{"--flows=off"}, attackers: onLink, victims: onLink, byNode: true},
	{name: "no agent", flags: []string{"--flows=off"}, attackers: onLink, victims: onLink, noAgent: true},
	{name: "flows of all pods", flags: []string{"--flows=all"}, attackers: onLink, victims: onLink},
}

// mixedConfigurations are the kinds of attackers and victims that no other configuration has.
func mixedConfigurations() (all []configuration) {
	names := map[podKind]string{ofRange: "the node's range", onLink: "macvlan", routed: "the routed underlay"}
	for _, attackers := range allKinds {
		for _, victims := range allKinds {
			if attackers != victims || attackers == routed {
				all = append(all, configuration{name: names[attackers] + " attacks " + names[victims], flags: []string{"--flows=off", wholeLink}, attackers: attackers, victims: victims})
			}
		}
	}
	return all
}

// TestMacvlanAttacks attacks from and on macvlan pods, which share the nodes' link with the attacker, and attacks pods of
// each kind from pods of each other kind. A campaign (a seed is set) runs everything; CI one configuration of macvlan
// pods, and a few rows between other kinds.
func TestMacvlanAttacks(t *testing.T) {
	if testenv.DeviceKind() != "veth" {
		return // the pods have macvlan devices in each run
	}
	all := slices.Concat(macvlanConfigurations, mixedConfigurations())
	if os.Getenv(testenv.SeedVariable) == "" {
		all = slices.DeleteFunc(all, func(c configuration) bool {
			return !slices.Contains([]string{"flows off", "the node's range attacks macvlan", "macvlan attacks the routed underlay"}, c.name)
		})
		for i := range all[1:] {
			all[1+i].brief = true
		}
	}
	testAttacks(t, allKinds, all)
}

// testAttacks runs the table in all configurations, in one lab.
func testAttacks(t *testing.T, kinds []podKind, configurations []configuration) *lab {
	l := newLabOf(t, kinds, configurations[0].flags...)
	l.configuration = configurations[0]
	rows, wireRows := attacks(), fromWire()
	shuffle(t, l, rows, wireRows)
	l.waitPolicies()
	for i, c := range configurations {
		t.Run(c.name, func(t *testing.T) {
			l.configuration = c
			if c.kubeProxy {
				defer l.addServiceRules()()
				runKubeProxy(t, l, c)
				return
			}
			switch {
			case c.noAgent:
				l.kill()
			case i > 0:
				l.restart(c.flags...)
				l.waitPolicies()
			}
			if c.brief {
				for _, a := range briefRows() {
					t.Run(a.name, func(t *testing.T) { a.run(t, l, true) })
				}
				return
			}
			for _, each := range scenarios {
				if !c.noAgent {
					t.Run(each.name, func(t *testing.T) { each.run(t, l) })
				}
			}
			for _, a := range rows {
				t.Run(a.name, func(t *testing.T) { a.run(t, l, !c.noAgent) })
			}
			for _, a := range wireRows {
				t.Run("from the wire, "+a.name, func(t *testing.T) { a.runFromWire(t, l, !c.noAgent) })
			}
		})
	}
	return l
}

// runKubeProxy runs the rows that depend on Services in the kernel stack.
func runKubeProxy(t *testing.T, l *lab, c configuration) {
	l.restart(c.flags...)
	l.waitPolicies()
	for _, a := range hairpins(forged, spoofed) {
		if a.kind != forged {
			continue // egress policy is not enforced on the node's own NodePort
		}
		t.Run(a.name, func(t *testing.T) { a.run(t, l, true) })
	}
	for _, a := range slices.Concat(forgedIndirect(), hairpins(denied, nil)) {
		t.Run("from the wire, "+a.name, func(t *testing.T) { a.runFromWire(t, l, true) })
	}
}

package adversary

import (
	"os"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// attacks are all rows that run in every configuration.
func attacks() []attack {
	return slices.Concat(plain, forgedSources(), forgedAddresses, forgedStations(), neighbours, middles(), segments, fragments, extensions, options, icmpAttacks, paths,
		detours(), hairpins(forged, spoofed), tunnelled(), links, lengths, offloads)
}

// configuration is one way to run the agents.
type configuration struct {
	name  string
	flags []string
	// dead ends the agents first: the datapath has to hold without them.
	dead bool
	// tunnelled says that tunnels join the nodes, dsr that backends answer clients of NodePorts directly.
	tunnelled, dsr bool
	// translated has rules of the stack translate Services, as kube-proxy has it do. Only those rows run for which that makes a difference: policies
	// for egress do not hold for what the stack translates.
	translated bool
}

// allNodePorts has NodePorts answer at the second addresses of nodes too.
const allNodePorts = "--nodeport-addresses=192.168.77.0/24,fd77::/64"

// configurations are what all attacks are carried out against, one after the other in one lab.
var configurations = []configuration{
	{name: "flows off", flags: []string{"--flows=off"}},
	{name: "no agent", flags: []string{"--flows=off"}, dead: true},
	{name: "flows of all pods", flags: []string{"--flows=all"}},
	{name: "no agent, flows of all pods", flags: []string{"--flows=all"}, dead: true},
	{name: "tunnel", flags: []string{"--flows=all", "--tunnel=vxlan", allNodePorts}, tunnelled: true},
	{name: "kernel routing", flags: []string{"--flows=off", "--routing=kernel"}},
	{name: "answers straight to the client", flags: []string{"--flows=off", "--nodeport-mode=dsr", allNodePorts}, dsr: true},
	{name: "kube-proxy, tunnel", flags: []string{"--flows=off", "--services=kube-proxy", "--tunnel=vxlan"}, tunnelled: true, translated: true},
}

// shuffle has a campaign's run begin with other ports and identifiers, and carry the attacks out in another order: what an earlier one leaves in the
// tables may let a later one through. CI's order is that of the table, so that a row that fails says what it is about.
func shuffle(t *testing.T, l *lab, all ...[]attack) {
	if os.Getenv(testenv.SeedVariable) == "" {
		return
	}
	random := testenv.Rand(t)
	const most = 1 << 20 // so that tokens do not come round
	l.tokens = random.Uint32N(most)
	for _, rows := range all {
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	}
}

func TestAttacks(t *testing.T) {
	l := newLab(t, configurations[0].flags...)
	rows, wireRows := attacks(), fromWire()
	shuffle(t, l, rows, wireRows)
	l.waitPolicies()
	for i, c := range configurations {
		t.Run(c.name, func(t *testing.T) {
			l.configuration = c
			if c.translated {
				defer l.translate()()
				runTranslated(t, l, c)
				return
			}
			switch {
			case c.dead:
				l.kill()
			case i > 0:
				l.restart(c.flags...)
				l.waitPolicies()
			}
			for _, each := range scenarios {
				if !c.dead {
					t.Run(each.name, func(t *testing.T) { each.run(t, l) })
				}
			}
			for _, a := range rows {
				t.Run(a.name, func(t *testing.T) { a.run(t, l, !c.dead) })
			}
			for _, a := range wireRows {
				t.Run("from the wire, "+a.name, func(t *testing.T) { a.runFromWire(t, l, !c.dead) })
			}
		})
	}
}

// runTranslated runs the rows that Services of the stack make a difference for.
func runTranslated(t *testing.T, l *lab, c configuration) {
	l.restart(c.flags...)
	l.waitPolicies()
	for _, a := range hairpins(forged, spoofed) {
		if a.kind != forged {
			continue // the node's own NodePort is beyond policies for egress
		}
		t.Run(a.name, func(t *testing.T) { a.run(t, l, true) })
	}
	for _, a := range slices.Concat(forgedDetours(), hairpins(guarded, nil)) {
		t.Run("from the wire, "+a.name, func(t *testing.T) { a.runFromWire(t, l, true) })
	}
}

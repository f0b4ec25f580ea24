package policy_test

import (
	"math/rand/v2"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/test/oracle"
)

// compareMiddle evaluates a packet from the middle of a TCP connection without a conntrack entry, in either
// direction. No local pod has a socket for it, so it is evaluated as a SYN of its sender, whatever its ports.
func (o *PolicyOracle) compareMiddle(t *testing.T, r *rand.Rand, w oracle.Cluster, first evaluate.Traffic) {
	t.Helper()
	if first.Source.Masqueraded || isNode(first.Source) || isNode(first.Destination) {
		return // connections between a node and its pods always continue
	}
	client := o.newClientPort()
	sent, port := first, client
	if chanceOf(r) {
		sent, port = first, first.Port
		sent.Source, sent.Destination, sent.Port = first.Destination, first.Source, client
	}
	v := evaluate.Evaluate(w.Snapshot, sent)
	want := w.Allows(v.Egress) && w.Allows(v.Ingress)
	p := firstPacket(sent, port)
	p.Transport[13] = fixtures.TcpACK
	path := o.pathOf(w, sent, p, chanceOf(r))
	got, err := o.passes(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("a packet without an entry, %s from port %d: passes: %t, expected %t\n%s", oracle.Describe(sent), port, got, want, w.YAML())
	}
	if !got {
		o.expectDrop(w, sent, path)
	}
}

// isNode reports whether an end is this node.
func isNode(e evaluate.Endpoint) bool {
	return e.Address == fixtures.NodeA.V4 || e.Address == fixtures.NodeA.V6
}

// A reused client port has no conntrack entry: the old one would decide for the new connection.
func TestOracleWithoutConnection(t *testing.T) {
	o := newPolicyOracle(t, config.Datapath{EBPFRouting: true})
	r := testenv.Rand(t)
	o.compare(t, r, oracle.Random(r), perCluster)
	if entries := harness.AllEntries(t, o.D.Conntrack); len(entries) == 0 {
		t.Fatalf("%d entries of evaluated connections", len(entries))
	}
	o.connections = clientPorts
	if port := o.newClientPort(); port != firstClientPort {
		t.Errorf("the first port again is %d", port)
	}
	if entries := harness.AllEntries(t, o.D.Conntrack); len(entries) != 0 {
		t.Errorf("%d entries are left", len(entries))
	}
}

package policy_test

import (
	"math/rand/v2"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/policy/evaluate/oracle"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// compareMiddle has a packet judged from the midst of a TCP connection whose session nobody knows, of who opened it or of the other
// end. No pod here has a socket for it, so it is judged as the SYN would be that its sender could send, whatever its ports are.
func (o *PolicyOracle) compareMiddle(t *testing.T, r *rand.Rand, w oracle.Cluster, opens evaluate.Traffic) {
	t.Helper()
	if opens.Source.Masqueraded || isNode(opens.Source) || isNode(opens.Destination) {
		return // a node and its pods go on with anything
	}
	client := o.newClientPort()
	sent, port := opens, client
	if chanceOf(r) {
		sent, port = opens, opens.Port
		sent.Source, sent.Destination, sent.Port = opens.Destination, opens.Source, client
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
		t.Fatalf("a packet without a session, %s from port %d: passes: %t, expected %t\n%s", oracle.Describe(sent), port, got, want, w.YAML())
	}
	if !got {
		o.expectDrop(w, sent, path)
	}
}

// isNode tells whether an end is this node.
func isNode(e evaluate.Endpoint) bool {
	return e.Address == fixtures.NodeA.V4 || e.Address == fixtures.NodeA.V6
}

// A client's port that comes again belongs to no session that is known: what is known of it would answer for the new one.
func TestOracleKnowsNoConnection(t *testing.T) {
	o := newPolicyOracle(t, config.Datapath{EBPFRouting: true})
	r := testenv.Rand(t)
	o.compare(t, r, oracle.Random(r), perCluster)
	if sessions := harness.AllEntries(t, o.D.Conntrack); len(sessions) == 0 {
		t.Fatalf("%d sessions of connections that were judged", len(sessions))
	}
	o.connections = clientPorts
	if port := o.newClientPort(); port != firstClientPort {
		t.Errorf("port %d begins them anew", port)
	}
	if sessions := harness.AllEntries(t, o.D.Conntrack); len(sessions) != 0 {
		t.Errorf("%d sessions are known still", len(sessions))
	}
}

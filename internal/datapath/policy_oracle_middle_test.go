package datapath

import (
	"math/rand/v2"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/policy/evaluate/oracle"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// clientsPort is the first port that is one of those which open connections, as far as ports tell.
const clientsPort = 32768

// compareMiddle has a packet judged from the midst of a TCP connection whose session nobody knows, of who opened it or of the other
// end. What documentation allows to begin has to go on, if a rule allows it or the ports do not say that the other end has begun it; so has what the
// other end may have begun. All else has not.
func (o *policyOracle) compareMiddle(t *testing.T, r *rand.Rand, w oracle.World, opens evaluate.Traffic) {
	t.Helper()
	if opens.Source.Masqueraded || isNode(opens.Source) || isNode(opens.Destination) {
		return // a node and its pods go on with anything
	}
	client := o.newClientPort()
	turned := opens
	turned.Source, turned.Destination, turned.Port = opens.Destination, opens.Source, client

	// The packet is of `sent`, whose opener sends it.
	sent, port, other := opens, client, turned
	if chanceOf(r) {
		sent, port, other = turned, opens.Port, opens
	}
	sender, receiver := port >= clientsPort, sent.Port >= clientsPort
	likely := sent
	if receiver && !sender {
		likely = other
	}
	begins := func(traffic evaluate.Traffic) (allowed, ruled bool) {
		v := evaluate.Evaluate(w.Snapshot, traffic)
		for _, j := range []evaluate.Judgement{v.Egress, v.Ingress} {
			ruled = ruled || j.Reason == evaluate.ReasonRule && w.Judges(j)
		}
		return w.Allows(v.Egress) && w.Allows(v.Ingress), ruled
	}
	want := false
	for _, traffic := range []evaluate.Traffic{sent, other} {
		allowed, ruled := begins(traffic)
		want = want || allowed && (ruled || sender == receiver || traffic == likely)
	}
	p := firstPacket(sent, port)
	p.transport[13] = tcpACK
	path := o.pathOf(w, sent, p, chanceOf(r))
	got, err := o.passes(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("a packet without a session, %s from port %d: passes: %t, expected %t\n%s", oracle.Describe(sent), port, got, want, w.YAML())
	}
	if !got {
		o.expectDrop(w, likely, path)
	}
}

// isNode tells whether an end is this node.
func isNode(e evaluate.Endpoint) bool { return e.Address == nodeA.v4 || e.Address == nodeA.v6 }

// A client's port that comes again belongs to no session that is known: what is known of it would answer for the new one.
func TestOracleKnowsNoConnection(t *testing.T) {
	o := newPolicyOracle(t, Config{EBPFRouting: true})
	r := testenv.Rand(t)
	o.compare(t, r, oracle.Random(r), perCluster)
	if sessions, err := o.d.Sessions.All(); err != nil || len(sessions) == 0 {
		t.Fatalf("%d sessions of connections that were judged (%v)", len(sessions), err)
	}
	o.connections = clientPorts
	if port := o.newClientPort(); port != firstClientPort {
		t.Errorf("port %d begins them anew", port)
	}
	if sessions, err := o.d.Sessions.All(); err != nil || len(sessions) != 0 {
		t.Errorf("%d sessions are known still (%v)", len(sessions), err)
	}
}

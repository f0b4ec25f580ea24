package adversary

import (
	"fmt"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// scenarios are attacks that are no list of frames. They leave the lab as they found it.
var scenarios = []struct {
	name string
	run  func(*testing.T, *lab)
}{
	{"a policy changes under traffic", policyChanges},
	{"a policy is edited under traffic", policyEdited},
	{"a policy isolates who sends", senderIsolated},
	{"an address gets another owner", addressReused},
}

// exchange is traffic of one pod with another that policies allow at first.
type exchange struct {
	*scene
}

// frames are of the connection, of another one in its middle, of a datagram's flow, and a new connection.
func (e exchange) frames() [][]byte {
	return [][]byte{
		e.tcp(e.live.client.Port(), e.live.server.Port(), frame.PSH|frame.ACK),
		e.tcp(e.live.client.Port(), e.live.server.Port(), frame.SYN),
		e.udp(),
		e.tcp(e.port, serverPort, frame.SYN),
		e.icmp(pick[uint8](e.scene, 8, 128), 0, uint32(e.port), e.token),
	}
}

// exchanges begins one at each of some victims over both families, and waits until all of its frames arrive.
func (l *lab) exchanges(t *testing.T, from *pod, victims string) (all []exchange) {
	t.Helper()
	for index := range l.nodes {
		for family := range fewAddresses {
			e := exchange{l.scene(from, l.pod(victims, index+1), family)}
			eventually(t, func() (err error) { // the node of the victim has to learn of the pod first
				e.live, err = connect(from.Place, e.victim.Place, e.to())
				return err
			})
			t.Cleanup(e.live.close)
			if err := e.want(true); err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
	}
	return all
}

// want sends each of the frames with a token of its own and says which arrives although it should not, or the other way round.
func (e exchange) want(arrives bool) error {
	port := e.port
	for i := range e.frames() {
		e.renew()
		e.port = port // the same flows as before
		if err := send(func() error { return e.attacker.each(e.frames()[i : i+1]) }); err != nil {
			return err
		}
		if err := e.mark(); err != nil {
			return err
		}
		if f := e.victim.heard.find(has(e.token)); (f != nil) != arrives {
			return fmt.Errorf("frame %d from %s at %s, IPv%d: arrives %t, want %t", i, e.attacker.Name, e.victim.Name, 4+2*e.family, !arrives, arrives)
		}
	}
	return nil
}

// wantNone waits until new connections are refused, and from then on nothing of the old flows may arrive either.
func wantNone(t *testing.T, all []exchange) {
	t.Helper()
	for _, e := range all {
		fresh := attack{frames: one(func(s *scene) []byte { return s.tcp(s.port, serverPort, frame.SYN) })}
		eventually(t, func() error {
			s := e.scene.lab.scene(e.attacker, e.victim, e.family)
			return s.strike(fresh, fresh.frames(s))
		})
		if err := e.want(false); err != nil {
			t.Error(err)
		}
	}
}

// policyChanges has a policy forbid what it allowed: flows of every kind that are there stop with the first new connection that is refused.
func policyChanges(t *testing.T, l *lab) {
	all := l.exchanges(t, l.pod(friend, 1), vault)
	l.pod(friend, 1).app = mallory
	l.writePods()
	defer func() {
		l.pod(friend, 1).app = friend
		l.writePods()
		l.waitPolicies()
	}()
	wantNone(t, all)
}

// under has other policies for a while.
func (l *lab) under(t *testing.T, policiesThen string, run func()) {
	t.Helper()
	if policiesThen == policies {
		t.Fatal("the policies are the same")
	}
	l.write("policies.yaml", []byte(policiesThen))
	defer func() {
		l.write("policies.yaml", []byte(policies))
		l.waitPolicies()
	}()
	run()
}

// policyEdited has the policy itself admit somebody else.
func policyEdited(t *testing.T, l *lab) {
	all := l.exchanges(t, l.pod(friend, 1), vault)
	l.under(t, strings.ReplaceAll(policies, "app: "+friend, "app: stranger"), func() { wantNone(t, all) })
}

// senderIsolated adds a policy for who sends: to those that policies isolate as well, and to those that none selects.
func senderIsolated(t *testing.T, l *lab) {
	var all []exchange
	for _, victims := range []string{vault, open} {
		all = append(all, l.exchanges(t, l.pod(friend, 1), victims)...)
	}
	l.under(t, policies+"---\n"+cage(friend), func() { wantNone(t, all) })
}

// reused are pods whose addresses others get: who is admitted, the pods that it sends to, and the label of who gets its address.
var reused = []struct{ name, guest, victims, heir string }{
	{"ingress only", friend, vault, mallory},
	{"egress only", courier, open, caged},
	{"both", courier, vault, caged},
}

// courier is isolated for egress. It may send to the victims, and vault admits it, by couriers.
const courier = "courier"

// couriers are the policies for it.
var couriers = fmt.Sprintf(`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %[1]s, namespace: default}
spec: {podSelector: {matchLabels: {app: %[1]s}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [%[2]s, %[3]s]}]}}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %[2]s-%[1]s, namespace: default}
spec: {podSelector: {matchLabels: {app: %[2]s}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: %[1]s}}}]}]}
`, courier, vault, open)

// addressReused gives the addresses of pods that policies let send to those that they do not, with the flows of the first ones still there.
func addressReused(t *testing.T, l *lab) {
	l.under(t, policies+couriers, func() {
		guests, all := make([]*pod, len(reused)), make([][]exchange, len(reused))
		for i, each := range reused {
			guests[i] = l.addPod(l.nodes[0], fmt.Sprint("guest-", i), each.guest)
		}
		l.writePods()
		for i, each := range reused {
			all[i] = l.exchanges(t, guests[i], each.victims)
		}
		for _, guest := range guests {
			l.deletePod(guest)
		}
		for family := range fewAddresses {
			heirs := l.addPodsAt(guests, family)
			for i, each := range reused {
				heirs[i].app = each.heir
			}
			l.writePods()
			for i, each := range reused {
				t.Run(fmt.Sprintf("%s, IPv%d", each.name, 4+2*family), func(t *testing.T) { wantNone(t, inherited(all[i], heirs[i], family)) })
			}
			for _, heir := range heirs {
				l.deletePod(heir)
			}
		}
	})
}

// inherited are those exchanges of one family, from the pod that has the address now.
func inherited(all []exchange, heir *pod, family int) (of []exchange) {
	for _, e := range all {
		if e.family == family {
			e.attacker = heir
			of = append(of, e)
		}
	}
	return of
}

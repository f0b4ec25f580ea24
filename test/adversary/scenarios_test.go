package adversary

import (
	"fmt"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// scenarios are attacks that are not a list of frames. They restore the lab's state.
var scenarios = []struct {
	name string
	run  func(*testing.T, *lab)
}{
	{"a policy changes under traffic", policyChanges},
	{"a policy is edited under traffic", policyEdited},
	{"a policy isolates the sender", senderIsolated},
	{"an address is reused", addressReused},
}

// exchange is traffic between two pods that policies allow at first.
type exchange struct {
	*attempt
}

// frames are a segment of the live connection, a SYN on its ports, a datagram, a new connection and an echo request.
func (e exchange) frames() [][]byte {
	return [][]byte{
		e.tcp(e.live.client.Port(), e.live.server.Port(), frame.PSH|frame.ACK),
		e.tcp(e.live.client.Port(), e.live.server.Port(), frame.SYN),
		e.udp(),
		e.tcp(e.port, serverPort, frame.SYN),
		e.icmp(pick[uint8](e.attempt, 8, 128), 0, uint32(e.port), e.token),
	}
}

// exchanges starts one to each victim over both families, and waits until all of its frames arrive.
func (l *lab) exchanges(t *testing.T, from *pod, victims string) (all []exchange) {
	t.Helper()
	for index := range l.nodes {
		for family := range podPrefixLengths {
			e := exchange{l.attempt(from, l.pod(victims, index+1), family)}
			eventually(t, func() (err error) { // the victim's node must receive the pod's object first
				e.live, err = connect(from.Netns, e.victim.Netns, e.to())
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

// want sends each frame with its own token and returns an error if one arrives unexpectedly or is missing.
func (e exchange) want(arrives bool) error {
	port := e.port
	for i := range e.frames() {
		e.renew()
		e.port = port // the same flows
		if err := send(func() error { return e.attacker.each(e.frames()[i : i+1]) }); err != nil {
			return err
		}
		if err := e.mark(); err != nil {
			return err
		}
		if f := e.victim.capture.find(has(e.token)); (f != nil) != arrives {
			return fmt.Errorf("frame %d from %s at %s, IPv%d: arrived %t, want %t", i, e.attacker.Name, e.victim.Name, 4+2*e.family, !arrives, arrives)
		}
	}
	return nil
}

// wantNone waits until new connections are denied, and then the old flows. From then on no frame of these may arrive. Tables change before
// the revision by which old flows are evaluated again: in between, an agent that does not get the CPU lets one frame more pass.
func wantNone(t *testing.T, all []exchange) {
	t.Helper()
	for _, e := range all {
		fresh := attack{frames: one(func(s *attempt) []byte { return s.tcp(s.port, serverPort, frame.SYN) })}
		eventually(t, func() error {
			s := e.attempt.lab.attempt(e.attacker, e.victim, e.family)
			return s.sendAndCheck(fresh, fresh.frames(s))
		})
		eventually(t, func() error { return e.want(false) })
		if err := e.want(false); err != nil {
			t.Error(err)
		}
	}
}

// policyChanges relabels a pod so that a policy denies what it allowed: established flows stop, too.
func policyChanges(t *testing.T, l *lab) {
	all := l.exchanges(t, l.pod(admitted, 1), isolated)
	l.pod(admitted, 1).app = attackerApp
	l.writePods()
	defer func() {
		l.pod(admitted, 1).app = admitted
		l.writePods()
		l.waitPolicies()
	}()
	wantNone(t, all)
}

// withPolicies replaces the policies while run runs.
func (l *lab) withPolicies(t *testing.T, replaced string, run func()) {
	t.Helper()
	if replaced == policies {
		t.Fatal("the policies are the same")
	}
	l.write("policies.yaml", []byte(replaced))
	defer func() {
		l.write("policies.yaml", []byte(policies))
		l.waitPolicies()
	}()
	run()
}

// policyEdited edits the policy to admit another pod.
func policyEdited(t *testing.T, l *lab) {
	all := l.exchanges(t, l.pod(admitted, 1), isolated)
	l.withPolicies(t, strings.ReplaceAll(policies, "app: "+admitted, "app: other"), func() { wantNone(t, all) })
}

// senderIsolated adds an egress policy for the sender, with victims that policies isolate and that none selects.
func senderIsolated(t *testing.T, l *lab) {
	var all []exchange
	for _, victims := range []string{isolated, unselected} {
		all = append(all, l.exchanges(t, l.pod(admitted, 1), victims)...)
	}
	l.withPolicies(t, policies+"---\n"+egressPolicy(admitted), func() { wantNone(t, all) })
}

// reused are cases of address reuse: the app of the old pod, the victims, and the app of the new pod.
var reused = []struct{ name, oldApp, victims, newApp string }{
	{"ingress only", admitted, isolated, attackerApp},
	{"egress only", allowed, unselected, restricted},
	{"both", allowed, isolated, restricted},
}

// allowed is isolated for egress but may send to the victims, and isolated admits it, by allowedPolicies.
const allowed = "allowed"

// allowedPolicies are the policies for allowed.
var allowedPolicies = fmt.Sprintf(`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %[1]s, namespace: default}
spec: {podSelector: {matchLabels: {app: %[1]s}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [%[2]s, %[3]s]}]}}]}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %[2]s-%[1]s, namespace: default}
spec: {podSelector: {matchLabels: {app: %[2]s}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: %[1]s}}}]}]}
`, allowed, isolated, unselected)

// addressReused gives the addresses of allowed pods to pods that policies deny, while the flows of the old pods still
// have conntrack entries.
func addressReused(t *testing.T, l *lab) {
	l.withPolicies(t, policies+allowedPolicies, func() {
		oldPods, all := make([]*pod, len(reused)), make([][]exchange, len(reused))
		for i, each := range reused {
			oldPods[i] = l.addPod(l.nodes[0], fmt.Sprint("old-", i), each.oldApp)
		}
		l.writePods()
		for i, each := range reused {
			all[i] = l.exchanges(t, oldPods[i], each.victims)
		}
		for _, oldApp := range oldPods {
			l.deletePod(oldApp)
		}
		for family := range podPrefixLengths {
			reusing := l.reuseAddresses(oldPods, family)
			for i, each := range reused {
				reusing[i].app = each.newApp
			}
			l.writePods()
			for i, each := range reused {
				t.Run(fmt.Sprintf("%s, IPv%d", each.name, 4+2*family), func(t *testing.T) { wantNone(t, fromNewPod(all[i], reusing[i], family)) })
			}
			for _, newPod := range reusing {
				l.deletePod(newPod)
			}
		}
	})
}

// fromNewPod returns the exchanges of one family, sent by the new pod of the address.
func fromNewPod(all []exchange, newPod *pod, family int) (of []exchange) {
	for _, e := range all {
		if e.family == family {
			e.attacker = newPod
			of = append(of, e)
		}
	}
	return of
}

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// policyLab is an external lab with a second pod on here, Pod objects with labels, and NetworkPolicies. Pods serve TCP at
// two ports.
type policyLab struct {
	*external
	// near is a second pod on here.
	near machine
	// labels are the values of the label app, by name of the pod.
	labels map[string]string
}

// otherPort is a second port at which pods serve.
const otherPort = 8081

func newPolicyLab(t *testing.T, flags ...string) *policyLab { return newPolicyLabOf(t, nil, flags...) }

// newPolicyLabOf uses the agents and the plugin of this build; nil is current.
func newPolicyLabOf(t *testing.T, of *programs, flags ...string) *policyLab {
	w := newExternalOf(t, of, flags...)
	p := w.addPod(w.nodes[0], "near")
	g := &policyLab{external: w, near: machine{"near", p.Netns, p.Addresses}, labels: map[string]string{"pod": "web", "near": "client", "far": "client"}}
	g.writePods()
	for _, e := range []machine{g.pod, g.near, g.far, g.outside} {
		serveName(t, e, backendPort)
		serveName(t, e, otherPort)
	}
	return g
}

// writePods publishes the pods with their labels.
func (g *policyLab) writePods() {
	g.t.Helper()
	var text bytes.Buffer
	for _, e := range []machine{g.pod, g.near, g.far} {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default, labels: {app: %s}}\n"+
			"spec: {containers: [{name: c, ports: [{name: web, containerPort: %d}]}]}\nstatus: {podIPs: [{ip: %s}, {ip: '%s'}]}\n",
			e.name, g.labels[e.name], backendPort, e.addresses[0], e.addresses[1])
	}
	g.writeManifest("pods.yaml", text.Bytes())
}

// policy publishes a NetworkPolicy with this spec.
func (g *policyLab) policy(name, spec string) {
	g.t.Helper()
	g.writeManifest("policy-"+name+".yaml", fmt.Appendf(nil,
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: default}\nspec: %s\n", name, spec))
}

// noPolicy removes a NetworkPolicy.
func (g *policyLab) noPolicy(name string) {
	g.t.Helper()
	g.writeManifest("policy-"+name+".yaml", nil)
}

// deniedFor is the timeout of a connection that may be denied. An allowed one takes less than a millisecond.
const deniedFor = 300 * time.Millisecond

// dials connects within deniedFor; on a busy machine an allowed connection may fail.
func dials(from testbed.Netns, to netip.AddrPort) error { return dialsWithin(from, to, deniedFor) }

// dialsWithin connects within the limit.
func dialsWithin(from testbed.Netns, to netip.AddrPort, limit time.Duration) error {
	return from.Do(func() error {
		conn, err := net.DialTimeout("tcp", to.String(), limit)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// expectPorts waits until one machine reaches exactly these ports of the other, over both families. It checks all ports
// at once, because each denied one takes deniedFor.
func (g *policyLab) expectPorts(from, to machine, ports ...uint16) {
	g.t.Helper()
	served := []uint16{backendPort, otherPort}
	eventually(g.t, func() error {
		errs := make([]error, len(to.addresses)*len(served))
		var checks sync.WaitGroup
		for i, a := range to.addresses {
			for j, port := range served {
				checks.Go(func() {
					errs[i*len(served)+j] = reaches(from, to, netip.AddrPortFrom(a, port), slices.Contains(ports, port))
				})
			}
		}
		checks.Wait()
		return errors.Join(errs...)
	})
}

// reaches checks whether one machine reaches a port of the other as wanted.
func reaches(from, to machine, port netip.AddrPort, want bool) error {
	err := dials(from.netns, port)
	var timeout net.Error
	switch {
	case err == nil && !want:
		return fmt.Errorf("%s reaches %s of %s, which no policy allows", from.name, port, to.name)
	case err != nil && want:
		return fmt.Errorf("%s to %s: %w", from.name, to.name, err)
	case err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()):
		return fmt.Errorf("%s to %s: %w, want a timeout", from.name, to.name, err)
	}
	return nil
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"ebpf":              {"--services=none"},
		"ebpf, Services":    nil,
		"kernel":            {"--routing=kernel"},
		"beside kube-proxy": {"--services=kube-proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newPolicyLab(t, flags...)
			clients := []machine{g.near, g.far, g.outside, g.peer}
			for _, e := range clients {
				g.expectPorts(e, g.pod, backendPort, otherPort)
			}

			g.policy("web", "{podSelector: {matchLabels: {app: web}}}")
			for _, e := range clients {
				g.expectPorts(e, g.pod)
			}
			g.expectPorts(g.node, g.pod, backendPort, otherPort) // the kubelet's probes
			g.expectPorts(g.pod, g.pod, backendPort, otherPort)
			g.expectPorts(g.pod, g.far, backendPort, otherPort) // only its ingress is isolated

			g.policy("web", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: web}]}]}")
			g.expectPorts(g.near, g.pod, backendPort)
			g.expectPorts(g.far, g.pod, backendPort)
			g.expectPorts(g.outside, g.pod)

			var blocks []string
			for _, a := range g.outside.addresses {
				blocks = append(blocks, fmt.Sprintf("{ipBlock: {cidr: '%s'}}", netip.PrefixFrom(a, a.BitLen())))
			}
			g.policy("external", "{podSelector: {}, policyTypes: [Ingress], ingress: [{from: ["+strings.Join(blocks, ", ")+
				fmt.Sprintf("], ports: [{port: %d, endPort: %d}]}]}", otherPort, otherPort+5))
			g.expectPorts(g.outside, g.pod, otherPort)
			g.expectPorts(g.near, g.pod, backendPort)
			g.expectPorts(g.pod, g.near) // policy external selects every pod

			g.labels["far"] = "stranger"
			g.writePods()
			g.expectPorts(g.far, g.pod)
			g.expectPorts(g.near, g.pod, backendPort)

			g.noPolicy("web")
			g.noPolicy("external")
			for _, e := range clients {
				g.expectPorts(e, g.pod, backendPort, otherPort)
			}

			g.policy("out", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: client}}}]}]}")
			g.expectPorts(g.pod, g.near, backendPort, otherPort)
			g.expectPorts(g.pod, g.far)
			g.expectPorts(g.pod, g.outside)
			g.expectPorts(g.pod, g.peer)
			g.expectPorts(g.far, g.pod, backendPort, otherPort)
			if name == "beside kube-proxy" {
				g.waitProblem(g.here, "--services=kube-proxy", "default/out")
			} else {
				g.waitNoProblem(g.here)
			}
		})
	}
}

// Connections that are no longer allowed stop; others continue.
func TestPolicyChangesUnderConnections(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t)
	const fromClients = "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}"
	g.policy("web", fromClients)
	g.expectPorts(g.outside, g.pod)
	var stays, stops []*stream
	for _, a := range g.pod.addresses {
		for from, all := range map[*machine]*[]*stream{&g.near: &stays, &g.far: &stops} {
			s, err := startStream(from.name+" "+family(a), from.netns, g.pod.netns, a)
			if err != nil {
				t.Fatal(err)
			}
			*all = append(*all, s)
		}
	}
	for _, s := range append(slices.Clone(stays), stops...) {
		if err := s.progress(chunk * 16); err != nil {
			t.Fatal(err)
		}
	}
	g.labels["far"] = "stranger"
	g.writePods()
	g.expectPorts(g.far, g.pod)
	for _, s := range stops {
		eventually(t, func() error {
			before := s.received.Load()
			time.Sleep(deniedFor)
			if moved := s.received.Load() - before; moved > 0 {
				return fmt.Errorf("%s continues: %d bytes", s.name, moved)
			}
			return nil
		})
	}
	for _, s := range stays {
		if err := s.progress(chunk * 16); err != nil {
			t.Error(err)
		}
	}
	g.labels["far"] = "client" // a stopped connection continues when it is allowed again
	g.writePods()
	for _, s := range append(stays, stops...) {
		if err := s.progress(chunk); err != nil {
			t.Error(err)
		}
		if err := s.finish(); err != nil {
			t.Error(err)
		}
	}
}

// A restart of the agent under traffic allows no denied connection and breaks no allowed one.
func TestPolicyOverRestart(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"ebpf": nil, "kernel": {"--routing=kernel"}} {
		t.Run(name, func(t *testing.T) {
			g := newPolicyLab(t, flags...)
			g.policy("web", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}")
			g.labels["far"] = "stranger"
			g.writePods()
			g.expectPorts(g.far, g.pod)
			g.expectPorts(g.outside, g.pod)
			tr := &traffic{t: t}
			for _, a := range g.pod.addresses {
				s, err := startStream("stream "+family(a), g.near.netns, g.pod.netns, a)
				tr.add(s, err)
				tr.streams = append(tr.streams, s)
			}
			tr.waitProgress()
			probe := g.probe(g.far, g.outside)
			for range 3 {
				g.kill(g.here)
				tr.waitProgress()
				g.start(g.here, current(t), flags...)
				g.waitReady(g.here)
				tr.waitProgress()
			}
			probe.finish(t)
			tr.finish()
			g.expectPorts(g.near, g.pod, backendPort, otherPort)
		})
	}
}

// An agent that enforces policies after one that did not fills the maps before it attaches programs. Established
// connections that are allowed continue; others stop.
func TestPolicyTurnedOn(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t, "--policy=none")
	// In both directions: with ingress only, a packet from the pod would make its unknown connection an allowed one.
	g.policy("web", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}")
	g.labels["far"] = "stranger"
	g.writePods()
	g.waitProblem(g.here, "default/web")
	g.expectPorts(g.far, g.pod, backendPort, otherPort)
	tr := &traffic{t: t}
	s, err := startStream("stream", g.near.netns, g.pod.netns, g.pod.addresses[0])
	tr.add(s, err)
	tr.streams = append(tr.streams, s)
	stranger, err := startStream("stranger", g.far.netns, g.pod.netns, g.pod.addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	g.kill(g.here)
	g.start(g.here, current(t))
	g.waitReady(g.here)
	g.expectPorts(g.far, g.pod)
	tr.waitProgress()
	eventually(t, func() error {
		before := stranger.received.Load()
		time.Sleep(deniedFor)
		if stranger.received.Load() > before {
			return errors.New("a connection that is not allowed continues")
		}
		return nil
	})
	g.labels["far"] = "client"
	g.writePods()
	if err := stranger.progress(chunk); err != nil {
		t.Error(err)
	}
	tr.flows = append(tr.flows, stranger)
	tr.finish()
}

// A policy that does not fit denies all traffic of the pods that it selects, and a problem names it. Other policies stay
// enforced.
func TestPolicyThatDoesNotFit(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t, "--policies-max=16")
	g.policy("web", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: web}]}]}")
	g.expectPorts(g.far, g.pod, backendPort)
	g.expectPorts(g.outside, g.pod)
	var rules []string
	for i := range 40 {
		rules = append(rules, fmt.Sprintf("{from: [{ipBlock: {cidr: 10.250.%d.0/24}}], ports: [{port: %d}]}", i, 1000+i))
	}
	g.policy("large", "{podSelector: {matchLabels: {app: client}}, ingress: ["+strings.Join(rules, ", ")+"]}")
	g.waitProblem(g.here, "NetworkPolicy default/large", "--policies-max")
	g.expectPorts(g.outside, g.near)
	g.expectPorts(g.far, g.pod, backendPort)
	g.expectPorts(g.node, g.near, backendPort, otherPort)
	all, err := g.here.api().Policies(t.Context(), agentapi.PolicyFilter{})
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, p := range all {
		states[p.Name] = p.State
	}
	if states["web"] != agentapi.PolicyActive || states["large"] != agentapi.PolicyClosed {
		t.Errorf("states are %v", states)
	}
	g.noPolicy("large")
	g.waitNoProblem(g.here)
	g.expectPorts(g.outside, g.near, backendPort, otherPort)
}

// Policies see the backend of a Service and its real client.
func TestPolicyThroughService(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t)
	b := &serviceLab{g.external}
	g.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, "", g.pod))
	for _, a := range serviceOfFar {
		b.expectReply(g.near, netip.AddrPortFrom(a, servicePort), g.pod)
	}
	g.policy("web", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: web}]}]}")
	g.labels["far"] = "stranger"
	g.writePods()
	g.expectPorts(g.far, g.pod)
	for _, a := range serviceOfFar {
		to := netip.AddrPortFrom(a, servicePort)
		b.expectReply(g.near, to, g.pod)
		if err := dials(g.far.netns, to); err == nil {
			t.Errorf("far reaches %s", to)
		}
	}
}

// The pods of an invalid policy are denied all traffic until it is valid.
func TestPolicyThatIsNotUnderstood(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t)
	g.policy("web", "{podSelector: {matchLabels: {app: web}}, ingress: [{form: []}]}")
	g.waitProblem(g.here, "NetworkPolicy default/web", "unknown field")
	g.expectPorts(g.near, g.pod)
	g.expectPorts(g.far, g.near, backendPort, otherPort)
	g.expectPorts(g.pod, g.far, backendPort, otherPort)
	g.policy("web", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: []}]}")
	g.expectPorts(g.near, g.pod, backendPort, otherPort)
	g.waitNoProblem(g.here)
}

// Without enforcement a problem names the policies without effect.
func TestPolicyNone(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t, "--policy=none")
	g.policy("web", "{podSelector: {}}")
	g.waitProblem(g.here, "default/web", "--policy=none")
	g.expectPorts(g.far, g.pod, backendPort, otherPort)
}

// Allowed traffic to the external network is masqueraded, as without policies.
func TestPolicyAndExternal(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"ebpf": nil, "kernel": {"--routing=kernel"}} {
		t.Run(name, func(t *testing.T) {
			g := newPolicyLab(t, flags...)
			g.policy("all", "{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{}]}")
			g.waitStatus(g.here, func(s *agentapi.Status) error {
				if s.Policy.Pods != 2 {
					return fmt.Errorf("%d pods are selected", s.Policy.Pods)
				}
				return nil
			})
			g.expect(g.pod, g.outside, g.node)
			g.expect(g.outside, g.pod, g.outside)
			g.expect(g.pod, g.far, g.pod)
			g.expect(g.pod, g.node, g.pod)
		})
	}
}

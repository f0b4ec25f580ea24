package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// TestServiceAffinity has a client stay with its backend, also when others come and the agent is another one, until the backend goes.
func TestServiceAffinity(t *testing.T) {
	b := newServiceLab(t)
	near := b.addPod(b.here, "near")
	other := machine{"near", b.lab.Place(near), near.Addresses}
	answer(t, b.far, backendPort)
	answer(t, other, backendPort)
	const affinity = "  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}\n"
	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, affinity, b.far))
	// A connection from before is translated late, as packets, whose client is known by another mark than that of sockets.
	b.waitServices(func(all []agentapi.ServicePort) error { return backendsAre(all, "web", 1) })
	to := netip.AddrPortFrom(serviceOfFar[0], servicePort)
	b.expectAnswer(b.pod, to, b.far)

	stays := func(when string) {
		t.Helper()
		for range 12 { // without affinity one of these would be answered by the other, but for one time in 4096
			if got, err := ask(t, b.pod.place, to); err != nil || got != b.far.name {
				t.Fatalf("%s: answer %q, error %v, want %s to go on answering", when, got, err, b.far.name)
			}
		}
	}
	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, affinity, b.far, other))
	b.waitServices(func(all []agentapi.ServicePort) error { return backendsAre(all, "web", 2) })
	stays("another backend has come")
	b.kill(b.here)
	stays("the agent is killed")
	b.start(b.here, current(t), "--services=ebpf")
	b.waitReady(b.here)
	stays("the next agent runs")

	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, affinity, other))
	b.expectAnswer(b.pod, to, other)
	b.waitServices(func(all []agentapi.ServicePort) error {
		for _, p := range all {
			if p.Name == "web" && p.Protocol == "TCP" && p.AffinitySeconds == 600 && p.Connections >= 3*12 && p.Refused == 0 {
				return nil
			}
		}
		return fmt.Errorf("nothing of the affinity and the connections in %+v", all)
	})
}

// TestServicesFull has more Services than fit: the status says which, why and what to do, the others work, and when there is
// room the one that was left out comes by itself.
func TestServicesFull(t *testing.T) {
	b := newServiceLab(t, "--services-max=6") // a Service of serviceYAML has four frontends
	answer(t, b.far, backendPort)
	b.writeManifest("first.yaml", serviceYAML("first", serviceOfFar, "", b.far))
	first, second := netip.AddrPortFrom(serviceOfFar[0], servicePort), netip.AddrPortFrom(serviceOfNear[0], servicePort)
	b.expectAnswer(b.pod, first, b.far)
	b.writeManifest("second.yaml", serviceYAML("second", serviceOfNear, "", b.far))
	b.waitStatus(b.here, func(s *agentapi.Status) error {
		problems := strings.Join(s.Problems, "\n")
		if !strings.Contains(problems, "default/second") || !strings.Contains(problems, "map services is full with 6 entries: raise --services-max") {
			return fmt.Errorf("problems: %q", s.Problems)
		}
		return nil
	})
	b.expectAnswer(b.pod, first, b.far)
	b.writeManifest("first.yaml", nil)
	b.expectAnswer(b.pod, second, b.far)
	b.waitStatus(b.here, func(s *agentapi.Status) error {
		if len(s.Problems) > 0 {
			return fmt.Errorf("problems: %q", s.Problems)
		}
		return nil
	})
}

// waitServices waits until what the agent of here tells of Services is as it should be.
func (b *serviceLab) waitServices(condition func([]agentapi.ServicePort) error) {
	b.t.Helper()
	eventually(b.t, func() error {
		all, err := b.here.api().Services(b.t.Context(), agentapi.ServiceFilter{})
		if err != nil {
			return err
		}
		return condition(all)
	})
}

// backendsAre tells whether the kernel has so many backends behind each frontend of a Service.
func backendsAre(all []agentapi.ServicePort, name string, n int) error {
	found := false
	for _, p := range all {
		for _, f := range p.Frontends {
			if p.Name != name {
				continue
			}
			if got := len(f.Inside.Backends); got != n {
				return fmt.Errorf("frontend %v of %s has %d backends, want %d", f, name, got, n)
			}
			found = true
		}
	}
	if !found {
		return fmt.Errorf("no frontend of %s in %+v", name, all)
	}
	return nil
}

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	labservices "github.com/beeline-cni/beeline/lab/services"
)

// TestServiceAffinity checks that a client keeps its backend when another backend comes and when the agent restarts,
// until the backend goes.
func TestServiceAffinity(t *testing.T) {
	b := newServiceLab(t)
	near := b.addPod(b.here, "near")
	other := machine{"near", near.Netns, near.Addresses}
	serveName(t, b.far, backendPort)
	serveName(t, other, backendPort)
	const affinity = "  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}\n"
	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, affinity, b.far))
	// Without this wait the first connection is translated packet by packet, and has another affinity key than sockets.
	b.waitServices(func(all []agentapi.ServicePort) error { return backendsAre(all, "web", 1) })
	to := netip.AddrPortFrom(serviceOfFar[0], servicePort)
	b.expectReply(b.pod, to, b.far)

	keeps := func(when string) {
		t.Helper()
		for range 12 { // without affinity, all have one backend only once in 4096 runs
			if got, err := fetch(t, b.pod.netns, to); err != nil || got != b.far.name {
				t.Fatalf("%s: reply %q, error %v, want a reply of %s", when, got, err, b.far.name)
			}
		}
	}
	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, affinity, b.far, other))
	b.waitServices(func(all []agentapi.ServicePort) error { return backendsAre(all, "web", 2) })
	keeps("with another backend")
	b.kill(b.here)
	keeps("without an agent")
	b.start(b.here, current(t), "--services=ebpf")
	b.waitReady(b.here)
	keeps("with the next agent")

	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, affinity, other))
	b.expectReply(b.pod, to, other)
	b.waitServices(func(all []agentapi.ServicePort) error {
		for _, p := range all {
			if p.Name == "web" && p.Protocol == "TCP" && p.AffinitySeconds == 600 && p.Connections >= 3*12 && p.Rejected == 0 {
				return nil
			}
		}
		return fmt.Errorf("no affinity or too few connections in %+v", all)
	})
}

// TestServicesFull has more Services than fit. The status names the Service that does not fit, the reason and the flag;
// the others work. When an entry becomes free, that Service works without further action.
func TestServicesFull(t *testing.T) {
	b := newServiceLab(t, "--services-max=6") // a Service of serviceYAML has four frontends
	serveName(t, b.far, backendPort)
	b.writeManifest("first.yaml", serviceYAML("first", serviceOfFar, "", b.far))
	first, second := netip.AddrPortFrom(serviceOfFar[0], servicePort), netip.AddrPortFrom(serviceOfNear[0], servicePort)
	b.expectReply(b.pod, first, b.far)
	b.writeManifest("second.yaml", serviceYAML("second", serviceOfNear, "", b.far))
	b.waitStatus(b.here, func(s *agentapi.Status) error {
		problems := strings.Join(s.Problems, "\n")
		if !strings.Contains(problems, "default/second") || !strings.Contains(problems, "map services is full with 6 entries: raise --services-max") {
			return fmt.Errorf("problems: %q", s.Problems)
		}
		return nil
	})
	b.expectReply(b.pod, first, b.far)
	b.writeManifest("first.yaml", nil)
	b.expectReply(b.pod, second, b.far)
	b.waitStatus(b.here, func(s *agentapi.Status) error {
		if len(s.Problems) > 0 {
			return fmt.Errorf("problems: %q", s.Problems)
		}
		return nil
	})
}

// waitServices waits until the Services of the agent of here satisfy the condition.
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

// backendsAre checks that each frontend of a Service has n backends.
func backendsAre(all []agentapi.ServicePort, name string, n int) error {
	found := false
	for _, p := range all {
		for _, f := range p.Frontends {
			if p.Name != name {
				continue
			}
			if got := len(f.Internal.Backends); got != n {
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

// A Service that changes thousands of times a second breaks no connection, and ends in the last state.
func TestServiceChangesByTheThousand(t *testing.T) {
	c := newAPILab(t, "--services=ebpf")
	client, one, two := c.pod("client", "u1"), c.pod("one", "u2"), c.pod("two", "u3")
	for _, server := range []machine{one, two} {
		serveName(t, server, backendPort)
	}
	behind := func(servers ...machine) (backends []labservices.Backend) {
		for _, s := range servers {
			backends = append(backends, labservices.Backend{Address: s.addresses[0], Node: c.nodes[0].Name})
		}
		return backends
	}
	web := labservices.Service{Name: "web", Address: serviceOfFar[0], Ports: []int{backendPort}, Backends: behind(one)}
	if err := c.server.Put(web.Objects()...); err != nil {
		t.Fatal(err)
	}
	to := netip.AddrPortFrom(web.Address, backendPort)
	eventually(t, func() error {
		_, err := fetch(t, client.netns, to)
		return err
	})

	const changes = 4000
	states := [][]labservices.Backend{behind(one), behind(one, two), behind(two)}
	begin, ended := time.Now(), make(chan error, 1)
	go func() {
		for i := range changes {
			web.Backends = states[i%len(states)]
			if err := c.server.Put(web.Slice()); err != nil {
				ended <- err
				return
			}
			time.Sleep(200 * time.Microsecond)
		}
		web.Backends = behind(two)
		t.Logf("%d changes in %v", changes, time.Since(begin))
		ended <- c.server.Put(web.Slice())
	}()
	request := func() string {
		t.Helper()
		got, err := fetch(t, client.netns, to)
		if err != nil {
			t.Fatalf("while the Service changes: %v", err)
		}
		return got
	}
	hasLastState := func(all []agentapi.ServicePort) error {
		if len(all) != 1 || len(all[0].Frontends) != 1 {
			return fmt.Errorf("services: %+v", all)
		}
		if b := all[0].Frontends[0].Internal.Backends; len(b) != 1 || b[0].Addr() != two.addresses[0] {
			return fmt.Errorf("backends: %+v", b)
		}
		return nil
	}
	connections := 0
	for changing := true; changing; connections++ {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			changing = false
		default:
		}
		request()
	}
	eventually(t, func() error {
		request()
		connections++
		all, err := c.nodes[0].api().Services(t.Context(), agentapi.ServiceFilter{Name: "web"})
		if err != nil {
			return err
		}
		return hasLastState(all)
	})
	t.Logf("%d connections meanwhile", connections)
	for range 10 {
		if got := request(); got != two.name {
			t.Fatalf("reply of %s after the last change, want %s", got, two.name)
		}
	}
	c.waitNoProblem(c.nodes[0])
}

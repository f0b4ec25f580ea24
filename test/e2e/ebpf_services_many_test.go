package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	labservices "github.com/beeline-cni/beeline/lab/services"
)

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

package lb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// wantedBy tells whether one of the ports of that name wants exactly this entry.
func wantedBy(ports []service.Port, name service.PortName, e service.Entry) bool {
	return slices.ContainsFunc(ports, func(p service.Port) bool {
		return p.Name == name && slices.ContainsFunc(p.Entries, func(w service.Entry) bool { return cmp.Equal(w, e, fixtures.CompareEntries) })
	})
}

// Whatever comes in whatever order, every frontend that somebody wants is in the kernel as one of those wants it, there is no
// other one, an error stands while somebody is without, restarts write nothing, and at the end nothing is left.
func TestServicesRandomly(t *testing.T) {
	const steps = 3000
	random := testenv.Rand(t)
	d := openServices(t, config.Datapath{Sizes: config.Sizes{Services: 256, Backends: 512}})
	s := d.Services
	model := map[service.PortName]service.Port{}
	clock := time.Now()
	conflicts, free := 0, 0
	for step := range steps {
		var err error
		switch n := random.IntN(100); {
		case n < 4:
			s = New(&d.Objects.Maps, 0) // the next agent
			_, err = s.Sync(inOrder(model))
		case n < 8:
			_, err = s.Sync(inOrder(model))
		case n < 18:
			clock = clock.Add(time.Hour)
			err = s.Sweep(clock)
		default:
			var set []service.Port
			var removed []service.PortName
			for range 1 + random.IntN(3) {
				p := randomPort(random)
				if slices.ContainsFunc(set, func(q service.Port) bool { return q.Name == p.Name }) || slices.Contains(removed, p.Name) {
					continue
				}
				if random.IntN(3) == 0 {
					removed = append(removed, p.Name)
					delete(model, p.Name)
				} else {
					set = append(set, p)
					model[p.Name] = p
				}
			}
			err = s.Apply(set, removed)
		}
		if wants(t, step, s, model, err) {
			conflicts++
		} else {
			free++
		}
		if t.Failed() {
			return
		}
	}
	if conflicts < steps/10 || free < steps/10 {
		t.Errorf("%d steps with conflicts and %d without: the steps do not try enough", conflicts, free)
	}
	clock = clock.Add(time.Hour)
	_ = s.Sweep(clock) // else the next agent deletes a set that just lost its last reference; conflicts may remain
	if changed, err := New(&d.Objects.Maps, 0).Sync(inOrder(model)); changed > 0 && err == nil {
		t.Errorf("the next agent writes %d entries", changed)
	}
	if _, err := s.Sync(nil); err != nil {
		t.Error(err)
	}
	if err := s.Sweep(clock.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	for name, n := range entries(t, s) {
		if n != 0 {
			t.Errorf("%d entries are left in %s", n, name)
		}
	}
}

// wants compares the kernel with the model, and tells whether there are conflicts.
func wants(t *testing.T, step int, s *Services, model map[service.PortName]service.Port, err error) (conflicts bool) {
	t.Helper()
	wanted := map[service.Frontend]int{}
	ports := inOrder(model)
	for _, p := range ports {
		for _, e := range p.Entries {
			wanted[e.Frontend]++
		}
	}
	for _, n := range wanted {
		conflicts = conflicts || n > 1
	}
	var conflict *ConflictError
	if errors.As(err, &conflict) != conflicts || err != nil && !conflicts {
		t.Errorf("step %d: conflicts are %t, and the error is %v", step, conflicts, err)
	}
	all, err := s.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for _, e := range p.Entries {
			if !wantedBy(ports, p.Name, e) {
				t.Errorf("step %d: %s has %+v, which it does not want", step, p.Name.Service, e)
			}
			delete(wanted, e.Frontend)
		}
	}
	for f := range wanted {
		t.Errorf("step %d: no port has %s", step, describe(f))
	}
	if n, err := table.Count(s.services); err != nil || n != frontendsOf(all) {
		t.Errorf("step %d: %d frontends have no port: %v", step, n-frontendsOf(all), err)
	}
	return conflicts
}

func frontendsOf(all []ServicePort) (n int) {
	for _, p := range all {
		n += len(p.Entries)
	}
	return n
}

func inOrder(model map[service.PortName]service.Port) []service.Port {
	var all []service.Port
	for _, p := range model {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b service.Port) int { return comparePorts(a.Name, b.Name) })
	return all
}

// randomPort is one of twelve, with few frontends and few backends: they should meet often enough.
func randomPort(random *rand.Rand) service.Port {
	var backends []netip.AddrPort
	for i := range 4 {
		if random.IntN(2) == 0 {
			backends = append(backends, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}), uint16(80+random.IntN(2))))
		}
	}
	number := random.IntN(12)
	p := fixtures.PortNamed(fmt.Sprintf("web-%02d", number), backends, fmt.Sprintf("10.96.0.%d:80", number))
	if random.IntN(2) == 0 {
		p = fixtures.NodePort(fixtures.PortNamed(p.Name.Service.Name, backends, fmt.Sprintf("10.96.0.%d:80", number), fmt.Sprintf("192.0.2.1:%d", 30000+random.IntN(60))))
	}
	e := &p.Entries[len(p.Entries)-1]
	if random.IntN(4) == 0 {
		e.Affinity = time.Duration(1+random.IntN(3)) * time.Hour
	}
	if random.IntN(4) == 0 {
		e.Sources = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(random.IntN(3)), 0}), 24)}
	}
	e.DSR = random.IntN(4) == 0
	return p
}

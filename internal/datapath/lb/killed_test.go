package lb

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// servicesRoot marks the test process as the agent to kill, and is the directory of its pinned maps.
const servicesRoot = "BEELINE_TEST_SERVICES_ROOT"

// generations are the two states between which Services alternate: some are missing in one, others have other
// backends, and a frontend moves to another Service.
func generations() [2][]service.Port {
	old, now := fixtures.Crowd(400), fixtures.Crowd(450)[50:] // more than one batch of each
	for i := range now {
		if i%2 == 0 {
			continue
		}
		for j := range now[i].Entries {
			e := &now[i].Entries[j]
			e.Internal.Addresses = slices.Clone(e.Internal.Addresses[2:])
			if len(e.External.Addresses) > 0 {
				e.External.Addresses = e.Internal.Addresses
			}
		}
	}
	now[1].Entries[1].Frontend, now[2].Entries[1].Frontend = now[2].Entries[1].Frontend, now[1].Entries[1].Frontend
	now[3].Entries[1].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	return [2][]service.Port{old, now}
}

// pinnedServices opens the pinned tables alone.
func pinnedServices(tb testing.TB, root string) *Services {
	tb.Helper()
	var maps bpf.Maps
	for name, m := range map[string]**ebpf.Map{
		bpf.MapServices: &maps.Services, bpf.MapBackends: &maps.Backends, bpf.MapMaglev: &maps.Maglev,
		bpf.MapServiceSources: &maps.ServiceSources, bpf.MapServiceCounts: &maps.ServiceCounts, bpf.MapAffinities: &maps.Affinities,
		bpf.MapAffinitiesExt: &maps.AffinitiesExt,
	} {
		var err error
		if *m, err = load.LoadCommitted(root, name); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { (*m).Close() })
	}
	return New(&maps, 0)
}

// TestAgentToBeKilled is started by TestServicesKilled: an agent that changes Services in a loop.
func TestAgentToBeKilled(t *testing.T) {
	root := os.Getenv(servicesRoot)
	if root == "" {
		return
	}
	s := pinnedServices(t, root)
	states := generations()
	fmt.Println("ready")
	for i := 0; ; i++ {
		want, before := states[i%2], states[(i+1)%2]
		var err error
		if i%3 == 0 {
			_, err = s.Sync(want)
		} else {
			var removed []service.PortName
			for _, p := range before {
				if !slices.ContainsFunc(want, func(w service.Port) bool { return w.Name == p.Name }) {
					removed = append(removed, p.Name)
				}
			}
			err = s.Apply(want, removed)
		}
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		if err := s.Sweep(time.Now().Add(2 * grace)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
}

// An agent killed in the middle of a change leaves every frontend with its old or its new backends, complete. The
// next agent reaches the desired state without leftovers.
func TestServicesKilled(t *testing.T) {
	const enough, most = 15, 300 // on a busy machine many agents are killed before their first change
	d := openServices(t, config.Datapath{Sizes: config.Sizes{Services: 2048, Backends: 16384}})
	states := generations()
	if _, err := d.Services.Sync(states[0]); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	between, kills := 0, 0
	for ; kills < enough || between == 0 && kills < most; kills++ {
		runAndKill(t, d.Objects.Config.Root, time.Duration(random.IntN(60_000))*time.Microsecond)
		n := entries(t, pinnedServices(t, d.Objects.Config.Root))[bpf.MapBackends]
		left := pinnedServices(t, d.Objects.Config.Root)
		if !consistent(t, left, states) || n != backendsIn(states[0]) && n != backendsIn(states[1]) {
			between++
		}
		if _, err := left.recover(); err != nil {
			t.Fatal(err)
		}
		for key, h := range left.frontends {
			if h.broken {
				t.Errorf("frontend %s refers to what is not there: %+v", describe(serviceFrontend(key)), h.value)
			}
		}
		want := states[kills%2]
		s := pinnedServices(t, d.Objects.Config.Root)
		if _, err := s.Sync(want); err != nil {
			t.Fatal(err)
		}
		holds(t, s, want...)
		later(t, s)
		if got := entries(t, s); got[bpf.MapBackends] != backendsIn(want) {
			t.Errorf("%d backends, expected %d: something is left over", got[bpf.MapBackends], backendsIn(want))
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d agents were killed in the middle of a change", between, kills)
	if between == 0 {
		t.Error("no agent was killed in the middle of a change")
	}
}

// runAndKill starts an agent and kills it some time after its start.
func runAndKill(t *testing.T, root string, after time.Duration) {
	t.Helper()
	dir, err := os.Open(filepath.Dir(root)) // the file system is mounted nowhere
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	agent := exec.Command(os.Args[0], "-test.run=^TestAgentToBeKilled$")
	agent.ExtraFiles = []*os.File{dir}
	agent.Env = append(os.Environ(), servicesRoot+"=/proc/self/fd/3/"+filepath.Base(root))
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Errorf("the agent says %q", lines.Text())
	}
	time.Sleep(after)
	if err := agent.Process.Kill(); err != nil {
		t.Error(err)
	}
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "error") {
			t.Error(lines.Text())
		}
	}
	if err := agent.Wait(); err == nil {
		t.Error("the agent ended before it was killed")
	}
}

// consistent fails the test unless every frontend matches one of the states, and reports whether all match the same
// one.
func consistent(t *testing.T, s *Services, states [2][]service.Port) bool {
	t.Helper()
	sets, err := s.readSets()
	if err != nil {
		t.Fatal(err)
	}
	names, err := s.names()
	if err != nil {
		t.Fatal(err)
	}
	var wanted [2]map[service.Frontend]service.Entry
	for i, ports := range states {
		wanted[i] = map[service.Frontend]service.Entry{}
		for _, p := range ports {
			for _, e := range p.Entries {
				wanted[i][e.Frontend] = e
			}
		}
	}
	var as [2]int
	n := 0
	err = table.Read(s.services, func(k *bpf.Frontend, v *bpf.Service) {
		n++
		got := entryOf(*k, *v, "", sets, names.sources)
		any := false
		for i := range wanted {
			want, ok := wanted[i][got.Frontend]
			want.Kind = ""
			if ok && sameEntry(want, got) {
				as[i]++
				any = true
			}
		}
		if !any {
			t.Errorf("frontend %s is neither as it was nor as it should be: %+v", describe(got.Frontend), got)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n == len(wanted[0]) && as[0] == n || n == len(wanted[1]) && as[1] == n
}

func sameEntry(a, b service.Entry) bool {
	return slices.Equal(a.Internal.Addresses, b.Internal.Addresses) && slices.Equal(a.External.Addresses, b.External.Addresses) &&
		a.Internal.Maglev == b.Internal.Maglev && a.External.Maglev == b.External.Maglev && slices.Equal(a.Sources, b.Sources)
}

// backendsIn counts the backends of different sets.
func backendsIn(ports []service.Port) (n int) {
	seen := map[string]bool{}
	for _, p := range ports {
		for _, e := range p.Entries {
			for _, side := range []service.Backends{e.Internal, e.External} {
				if content := string(pack(nil, side.Addresses)); !seen[content] {
					seen[content] = true
					n += len(side.Addresses)
				}
			}
		}
	}
	return n
}

package load_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// At its start, an agent loads what every node needs, and what an earlier agent has attached.
func TestAtStart(t *testing.T) {
	root := t.TempDir()
	cfg := config.Datapath{Root: root, EBPFRouting: true, Masquerade: true, Macvlan: true, HostNetns: 1}
	expect := func(want ...string) {
		t.Helper()
		want = append(want, bpf.ProgFromPod, bpf.ProgToPod, bpf.ProgFromWire, bpf.ProgToWire)
		got, err := load.AtStart(cfg)
		slices.Sort(want)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v (%v), want %v", got, err, want)
		}
	}
	expect() // no directory yet
	if err := os.Mkdir(load.LinkDir(root), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"eth0 from_pod", "eth0 from_macvlan", "from_tunnel to_wire", "to_macvlan"} {
		if err := os.WriteFile(filepath.Join(load.LinkDir(root), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect(bpf.ProgFromMacvlan)
}

// A program that is loaded later has the maps and the constants of the others. One that cannot be loaded is not tried
// again at once.
func TestProgramsAreLoadedLater(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), EBPFRouting: true, Macvlan: true, HostNetns: 1}
	o, err := load.Open(cfg, []string{bpf.ProgFromPod}, fixtures.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}()
	if o.Config.Handled == 0 || o.Config.MacvlanSource == 0 {
		t.Errorf("programs that are loaded later get other random numbers: %+v", o.Config)
	}
	if o.Programs[bpf.ProgToMacvlan] != nil {
		t.Fatal("loaded before the first device needs it")
	}
	program, err := o.Program(bpf.ProgToMacvlan)
	if err != nil {
		t.Fatal(err)
	}
	info, err := program.Info()
	if err != nil {
		t.Fatal(err)
	}
	uses, _ := info.MapIDs()
	shared, err := o.Maps.FlowCache.Info()
	if err != nil {
		t.Fatal(err)
	}
	if id, _ := shared.ID(); !slices.Contains(uses, id) {
		t.Errorf("it has a flow cache of its own: it uses maps %v, not %d", uses, id)
	}
	if again, err := o.Program(bpf.ProgToMacvlan); again != program || err != nil {
		t.Errorf("loaded twice: %v", err)
	}
	if _, err := o.Program(bpf.ProgToWire); err == nil {
		t.Error("a program that the configuration does not have is loaded")
	}

	cache := o.ByName[bpf.MapFlowCache]
	o.ByName[bpf.MapFlowCache] = o.Maps.Generation // of another kind
	_, first := o.Program(bpf.ProgFromMacvlan)
	o.ByName[bpf.MapFlowCache] = cache
	_, second := o.Program(bpf.ProgFromMacvlan)
	if first == nil || second == nil || !strings.HasPrefix(second.Error(), first.Error()+" (tried ") {
		t.Errorf("errors %v and %v", first, second)
	}
	if o.Programs[bpf.ProgFromMacvlan] != nil {
		t.Error("a rejected program is there")
	}

	// Later it is, whoever comes first, and once.
	o.Age(bpf.ProgFromMacvlan, load.RetryAfter)
	const callers = 4
	got := make([]*ebpf.Program, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			p, err := o.Program(bpf.ProgFromMacvlan)
			if got[i] = p; err != nil {
				t.Errorf("not tried again after %s: %v", load.RetryAfter, err)
			}
		})
	}
	all.Wait()
	for _, p := range got {
		if p == nil || p != got[0] {
			t.Errorf("programs of callers at once: %v", got)
		}
	}
	// Other devices do not wait for the verifier.
	o.WhileLoading(func() {
		if p, err := o.Program(bpf.ProgFromPod); p == nil || err != nil {
			t.Errorf("a loaded program, while another is loaded: %v", err)
		}
	})
}

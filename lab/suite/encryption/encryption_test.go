package encryption

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/report"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite/internal/suitetest"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
	"github.com/beeline-cni/beeline/test/netlab"
)

// programs has this project's binaries built, unless the environment names some.
func programs(t *testing.T) {
	t.Helper()
	testenv.Root(t)
	usual := network.AgentPatience
	network.AgentPatience = testenv.Patience(4 * usual) // programs take a minute to load in emulated machines
	t.Cleanup(func() { network.AgentPatience = usual })
	if os.Getenv("BEELINE_BIN") == "" {
		built, err := netlab.Variant("../../..", t.TempDir(), netlab.Current)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("BEELINE_BIN", built.Dir)
	}
}

// emulated reports whether this is a machine of test/vm: its kernel has all kinds of encryption.
func emulated() bool { return os.Getenv(netlab.VariantsVariable) != "" }

// TestNetworks brings up each network of the suite: pods reach each other with the largest packets, in packets of the
// size that the network has to have, and the wire shows their payload where it has to. In emulated machines, where agents
// take long to start, Beeline's have tests of their own with both families (test/e2e).
func TestNetworks(t *testing.T) {
	programs(t)
	labs := map[string]testbed.Options{"dual stack": {IPv6: true}}
	if !emulated() {
		labs["IPv4"], labs["jumbo"] = testbed.Options{}, testbed.Options{MTU: 9000, Nodes: 3}
	}
	overhead := map[string]int{"beeline-wireguard": 60, "beeline-ipsec": 54, "kernel-wireguard": 60, "kernel-ipsec": 54}
	for _, n := range network.WithEncryption() {
		if _, ours := n.(network.Beeline); ours && emulated() {
			continue
		}
		for name, o := range labs {
			t.Run(n.Name()+"/"+name, func(t *testing.T) {
				if why := n.Unsupported(); why != "" && emulated() {
					t.Fatal(why)
				} else if why != "" {
					testenv.Missing(t, why)
				}
				lab := up(t, n, o)
				var pods []*testbed.Pod
				for _, node := range []*testbed.Node{lab.Node(0), lab.Nodes()[len(lab.Nodes())-1]} {
					pod, err := network.AddPod(t.Context(), n, lab, node, "on-"+node.Name)
					if err != nil {
						t.Fatal(err)
					}
					pods = append(pods, pod)
				}
				for _, pair := range [][2]*testbed.Pod{{pods[0], pods[1]}, {pods[1], pods[0]}} {
					if err := network.Verify(t.Context(), n, pair[0], pair[1]); err != nil {
						t.Error(err)
					}
				}
				if _, err := network.VerifyWire(t.Context(), n, lab, pods[0], pods[1]); err != nil {
					t.Error(err)
				}
				if want := lab.MTU - overhead[n.Name()]; !o.IPv6 && pods[0].MTU != want {
					t.Errorf("path MTU %d, want %d", pods[0].MTU, want)
				}
			})
		}
	}
}

// up makes a lab with a network, which ends with the test.
func up(t *testing.T, n network.Network, o testbed.Options) *testbed.Lab {
	t.Helper()
	o.Name = "t-" + n.Name()
	lab, err := testbed.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Errorf("take down: %v", err)
		}
	})
	if err := n.Up(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	return lab
}

// TestRun runs the suite whole, with short samples. Where the kernel has all kinds of encryption, as in machines of
// test/vm, no network may be missing; else the report says what is missing and why, and has the others.
func TestRun(t *testing.T) {
	programs(t)
	s, err := New(round.Options{Rounds: 1, Length: 200 * time.Millisecond, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.Gate, s.WarmUp = suitetest.OpenGate(), 0
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	run, err := round.Run(t.Context(), s, round.NewProgress(t.Output(), s.Estimate()))
	suitetest.NothingLeft(t)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.New(run).Markdown(&text); err != nil {
		t.Fatal(err)
	}
	var present []string
	for _, n := range run.Networks {
		switch {
		case n.Unsupported == "":
			present = append(present, n.Name)
		case emulated() || !strings.HasPrefix(n.Unsupported, "not on this kernel: "):
			t.Errorf("%s is missing: %s", n.Name, n.Unsupported)
		case !strings.Contains(text.String(), strings.Fields(n.Unsupported)[4]) || !strings.Contains(text.String(), n.Name):
			t.Errorf("the report does not say that %s is missing: %s\n%s", n.Name, n.Unsupported, text.String())
		}
	}
	if !slices.Contains(present, "node") || !slices.Contains(present, "beeline") {
		t.Fatalf("only %v came up", present)
	}
	checkSamples(t, run, present)
	checkWires(t, run, present)
	if emulated() && !strings.Contains(text.String(), "emulated") {
		t.Errorf("the report does not say that this machine is emulated:\n%s", text.String())
	}
}

// checkSamples wants one of each workload, MTU and network.
func checkSamples(t *testing.T, run *result.Run, present []string) {
	t.Helper()
	found := map[string]int{}
	for _, s := range run.Samples {
		w := run.Workloads[slices.IndexFunc(run.Workloads, func(w result.Workload) bool { return w.Name == s.Workload })]
		if s.Error != "" || s.Values[w.Metric] <= 0 {
			t.Errorf("%s of %s: %v, %s", s.Workload, s.Network, s.Values, s.Error)
		}
		for _, rate := range run.Encryption.Paced {
			most := 1.5*rate.Rate + 4*8e-9*workload.PacedSend // some sends are under way at either end of a second
			if w.Of == workload.PacedName && w.MTU == rate.MTU && s.Values[result.Throughput] > most {
				t.Errorf("%s of %s reaches %.3f Gbit/s, and is held to %.3f", s.Workload, s.Network, s.Values[result.Throughput], rate.Rate)
			}
		}
		found[s.Network+" "+s.Workload]++
	}
	for _, name := range append(present, "node/again") {
		for _, w := range Workloads {
			for _, mtu := range []int{1500, 9000} {
				if key := fmt.Sprintf("%s %s_mtu_%d", name, w, mtu); found[key] != 1 {
					t.Errorf("%d samples of %s, want 1; rounds: %+v", found[key], key, run.Rounds)
				}
			}
		}
	}
}

// checkWires wants each network's proof by the wire, and rates that all reach.
func checkWires(t *testing.T, run *result.Run, present []string) {
	t.Helper()
	e := run.Encryption
	if len(e.Wires) != 2*len(present) {
		t.Errorf("%d captures of %d networks on two wires: %+v", len(e.Wires), len(present), e.Wires)
	}
	for _, w := range e.Wires {
		encrypts := strings.HasSuffix(w.Network, "-wireguard") || strings.HasSuffix(w.Network, "-ipsec")
		if encrypts != (w.Kind != "") || encrypts && (w.Marked > 0 || w.Inside > 0 || w.EncryptedBytes == 0) || !encrypts && w.Marked == 0 {
			t.Errorf("the wire: %+v", w)
		}
	}
	if len(e.Paced) != 2 || e.Paced[0].MTU != 1500 || e.Paced[1].MTU != 9000 || e.Paced[0].Rate <= 0 || e.Paced[0].Rate != e.Paced[0].Maximum/10 {
		t.Errorf("rates %+v", e.Paced)
	}
}

// TestPlan checks what is chosen and what is rejected.
func TestPlan(t *testing.T) {
	for name, o := range map[string]round.Options{
		"workload":   {Workloads: []string{"udp_rr"}},
		"network":    {Networks: []string{"macvlan"}},
		"path":       {Paths: []result.Path{result.SameNode}},
		"processes":  {Procs: []int{2}},
		"placements": {Placements: []result.Placement{result.OneCore, result.Spread}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s, err := New(round.Options{IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err == nil {
		t.Error("IPv6 is accepted")
	}
	s, err = New(round.Options{Workloads: []string{"tcp_paced", "tcp_rr"}, Placements: []result.Placement{result.OneCore}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range s.Cells {
		names = append(names, c.Workload.Info().Name+" "+string(c.Placement))
	}
	if want := "tcp_paced_mtu_1500 one-core,tcp_rr_mtu_1500 one-core,tcp_paced_mtu_9000 one-core,tcp_rr_mtu_9000 one-core"; strings.Join(names, ",") != want {
		t.Errorf("cells %v", names)
	}
}

package policy_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/test/oracle"
)

// The programs' verdicts on random connections in random clusters follow the documentation of NetworkPolicies, with
// the right drop reasons. Each cluster's tables replace those of the previous one.
func TestPolicyOracle(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  config.Datapath
		part int // of all cases, in percent
	}{
		{"ebpf", config.Datapath{EBPFRouting: true}, 70},
		{"kernel", config.Datapath{}, 20},
		{"flows of all pods", config.Datapath{EBPFRouting: true, Flows: config.FlowsAll}, 10},
		{"masquerading, with Services", config.Datapath{EBPFRouting: true, Masquerade: true, Services: true}, 20},
	} {
		t.Run(c.name, func(t *testing.T) { askOracle(t, c.cfg, oracleCases(t)*c.part/100) })
	}
}

// Seeds that have failed once.
func TestPolicyOracleOnceFailed(t *testing.T) {
	for _, seed := range []string{"6171356626218058019"} {
		t.Run(seed, func(t *testing.T) {
			t.Setenv(testenv.SeedVariable, seed)
			askOracle(t, config.Datapath{EBPFRouting: true}, oracleCases(t)*70/100)
		})
	}
}

// A short run, for emulated machines.
func TestPolicyOracleInShort(t *testing.T) { askOracle(t, config.Datapath{EBPFRouting: true}, 1000) }

// askOracle evaluates random connections.
func askOracle(t *testing.T, cfg config.Datapath, want int) {
	r := testenv.Rand(t)
	o := newPolicyOracle(t, cfg)
	var w oracle.Cluster
	cases, allowed := 0, 0
	for i := 0; cases < want; i++ {
		if i%4 == 0 {
			w = oracle.Random(r)
		} else {
			w = w.Change(r)
		}
		allowed += o.compare(t, r, w, perCluster)
		cases += perCluster
	}
	t.Logf("%d cases, %d of them allowed", cases, allowed)
	if part := float64(allowed) / float64(cases); cases > 10_000 && (part < 0.2 || part > 0.9) {
		t.Errorf("%.0f %% are allowed: most of it tests nothing", part*100)
	}
}

// perCluster is the number of connections per cluster.
const perCluster = 40

// oracleCases is the number of connections in total: BEELINE_CASES, if it is set.
func oracleCases(t *testing.T) int {
	text := os.Getenv("BEELINE_CASES")
	if text == "" {
		return 100_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("BEELINE_CASES: %v", err)
	}
	return n
}

// PolicyOracle evaluates connections by running their first packets.
type PolicyOracle struct {
	*harness.Harness
	tb       testing.TB
	compiler *policy.Compiler
	hooks    map[string]*ebpf.Program
	// connections counts the connections so far; it determines the next client port (newClientPort).
	connections int
	drop        map[string]uint64 // expected, by program and reason
}

func newPolicyOracle(tb testing.TB, cfg config.Datapath) *PolicyOracle {
	tb.Helper()
	cfg.Policy = true
	o := &PolicyOracle{tb: tb, Harness: Oracle(tb, cfg), compiler: policy.NewCompiler(oracle.Here), hooks: map[string]*ebpf.Program{}, drop: map[string]uint64{}}
	for _, name := range []string{bpf.ProgFromPod, bpf.ProgFromWire, bpf.ProgToPod} {
		program, err := o.Program(name)
		if err != nil {
			tb.Fatal(err)
		}
		o.hooks[name] = program
	}
	return o
}

// compare applies the policies of a cluster and evaluates random connections. It returns how many are allowed.
func (o *PolicyOracle) compare(t *testing.T, r *rand.Rand, w oracle.Cluster, connections int) (allowed int) {
	t.Helper()
	tables, _ := o.compiler.Compile(w.Snapshot, w.Local())
	if _, err := o.D.Policies.Sync(tables); err != nil {
		t.Fatal(err)
	}
	for range connections {
		traffic := w.Traffic(r)
		want, _, err := oracle.Documentation(w, traffic)
		if err != nil {
			t.Fatal(err)
		}
		path := o.path(w, traffic, chanceOf(r))
		got, err := o.passes(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatal(oracle.Disagreement(w, traffic, o.evaluate))
		}
		if got {
			allowed++
		} else {
			o.expectDrop(w, traffic, path)
		}
		if o.D.Objects.Config.EBPFRouting && !o.D.Objects.Config.Masquerade && traffic.Protocol == cluster.TCP && r.IntN(4) == 0 {
			o.compareMiddle(t, r, w, traffic)
		}
	}
	o.checkDrops(t, w)
	return allowed
}

func chanceOf(r *rand.Rand) bool { return r.IntN(2) == 0 }

// evaluate is an oracle.Evaluator of a single cluster.
func (o *PolicyOracle) evaluate(w oracle.Cluster, traffic evaluate.Traffic) (allowed bool, why string, err error) {
	tables, _ := policy.NewCompiler(oracle.Here).Compile(w.Snapshot, w.Local())
	if _, err := o.D.Policies.Sync(tables); err != nil {
		return false, "", err
	}
	byTables := true
	for _, byWire := range []bool{true, false} {
		path := o.path(w, traffic, byWire)
		passed, err := o.passes(path)
		if err != nil {
			return false, "", err
		}
		why += fmt.Sprintf("%s: passes: %t\n", path, passed)
		byTables = byTables && passed
	}
	why += fmt.Sprintf("sets of the source: %+v, of the destination: %+v\n", tables.Pods[traffic.Source.Address], tables.Pods[traffic.Destination.Address])
	return byTables, why, nil
}

// passage is a run of one program. from is the ingress device, if the stack forwards the packet.
type passage struct {
	program      string
	device, from string
	packet       fixtures.Packet
}

func (p passage) String() string { return p.program + " at " + p.device }

// path returns the programs that a new connection's first packet meets on this node. byWire selects one of two paths
// of inbound packets.
func (o *PolicyOracle) path(w oracle.Cluster, t evaluate.Traffic, byWire bool) []passage {
	return o.pathOf(w, t, firstPacket(t, o.newClientPort()), byWire)
}

// clientPorts is the number of client ports, from firstClientPort on.
const (
	firstClientPort = 1025
	clientPorts     = 60_000
)

// newClientPort returns a client port without a conntrack entry. Before ports are reused all entries are flushed:
// otherwise an entry would decide on a packet from the middle of a connection, and not the packet alone.
func (o *PolicyOracle) newClientPort() uint16 {
	port := o.connections % clientPorts
	if port == 0 {
		o.ClearVerdicts(o.tb)
	}
	o.connections++
	return uint16(firstClientPort + port)
}

// pathOf is the same for any packet of the initiator.
func (o *PolicyOracle) pathOf(w oracle.Cluster, t evaluate.Traffic, p fixtures.Packet, byWire bool) []passage {
	from, to := deviceOf(t.Source.Address), deviceOf(t.Destination.Address)
	delivered := passage{bpf.ProgToPod, to, "eth0", p.Macs(gatewayOf(to), fwd.MAC{})}
	switch {
	case from != "" && (to == "" || o.D.Objects.Config.EBPFRouting):
		return []passage{{bpf.ProgFromPod, from, "", p.Macs(fwd.MAC{}, gatewayOf(from))}}
	case from != "":
		delivered.from = from
		return []passage{{bpf.ProgFromPod, from, "", p.Macs(fwd.MAC{}, gatewayOf(from))}, delivered}
	case t.Source.Masqueraded:
		return []passage{delivered}
	case w.Nodes[0].Addresses[0] == t.Source.Address || w.Nodes[0].Addresses[1] == t.Source.Address:
		delivered.from = ""
		return []passage{delivered}
	case !o.D.Objects.Config.EBPFRouting:
		return []passage{{bpf.ProgFromWire, "eth0", "", p.Macs(fixtures.NodeB.Mac, fixtures.NodeA.Mac)}, delivered}
	case byWire:
		return []passage{{bpf.ProgFromWire, "eth0", "", p.Macs(fixtures.NodeB.Mac, fixtures.NodeA.Mac)}}
	}
	return []passage{delivered}
}

// deviceOf is the device of the local pod that has an address; empty if there is none.
func deviceOf(a netip.Addr) string {
	switch a {
	case fixtures.PodA.V4, fixtures.PodA.V6:
		return "blpoda"
	case fixtures.PodA2.V4, fixtures.PodA2.V6:
		return "blpoda2"
	}
	return ""
}

func gatewayOf(device string) fwd.MAC {
	if device == "blpoda2" {
		return fixtures.PodA2.Gateway
	}
	return fixtures.PodA.Gateway
}

// firstPacket is the first packet of a connection.
func firstPacket(t evaluate.Traffic, sourcePort uint16) fixtures.Packet {
	p := fixtures.Eth(fwd.MAC{}, fwd.MAC{}).Ip(t.Source.Address, t.Destination.Address)
	switch t.Protocol {
	case cluster.TCP:
		p = p.Tcp(sourcePort, t.Port)
		p.Transport[13] = 0x02 // SYN
	case cluster.UDP:
		p = p.Udp(sourcePort, t.Port)
	case cluster.SCTP:
		p = p.Sctp(sourcePort, t.Port).Chunk(fixtures.SctpInit)
	default:
		p = p.Echo()
		binary.BigEndian.PutUint16(p.Transport[4:], sourcePort)
	}
	return p
}

// passes reports whether no program of a path drops its packet.
func (o *PolicyOracle) passes(path []passage) (passed bool, err error) {
	o.Netns.Do(func() {
		for _, at := range path {
			ctx := harness.Skb{Ifindex: uint32(o.Netns.Devices[at.device]), IngressIfindex: uint32(o.Netns.Devices[at.from])}
			var code uint32
			in := at.packet.Bytes()
			code, err = o.hooks[at.program].Run(&ebpf.RunOptions{Data: in, DataOut: make([]byte, len(in)+64), Context: &ctx})
			if passed = err == nil && harness.Verdict(code) != harness.VerdictDrop; !passed {
				return
			}
		}
	})
	return passed, err
}

// expectDrop adds a connection to the expected drop counters.
func (o *PolicyOracle) expectDrop(w oracle.Cluster, t evaluate.Traffic, path []passage) {
	v := evaluate.Evaluate(w.Snapshot, t)
	at, j, reason, closed := path[0], v.Egress, bpf.DropReasonDROP_EGRESS_POLICY, bpf.DropReasonDROP_EGRESS_POLICY_PENDING
	if w.Allows(v.Egress) {
		at, j, reason, closed = path[len(path)-1], v.Ingress, bpf.DropReasonDROP_INGRESS_POLICY, bpf.DropReasonDROP_INGRESS_POLICY_PENDING
	}
	if j.Reason == evaluate.ReasonInvalid {
		reason = closed
	}
	o.drop[at.program+" "+flow.DropReason(reason).String()]++
}

// checkDrops compares the drop counters.
func (o *PolicyOracle) checkDrops(t *testing.T, w oracle.Cluster) {
	t.Helper()
	got := map[string]uint64{}
	for name, d := range o.Counters(t) {
		got[name] = d.Packets
	}
	if diff := cmp.Diff(o.drop, got); diff != "" {
		t.Fatalf("drops since the beginning (-expected +got):\n%s\n%s", diff, w.YAML())
	}
	o.drop = maps.Clone(got)
}

func Oracle(tb testing.TB, cfg config.Datapath) *harness.Harness {
	tb.Helper()
	if cfg.Services {
		return harness.NewServices(tb, cfg)
	}
	return harness.New(tb, cfg)
}

package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
	"github.com/beeline-cni/beeline/lab/workload"
)

// encryptionRun makes a run of the encryption suite from invented figures: WireGuard has the higher maximum, and the higher
// TCP_RR against the study; Beeline's IPsec is slower than the kernel's, and needs half the CPU of WireGuard.
func encryptionRun() *result.Run {
	run := &result.Run{
		Schema:      result.SchemaVersion,
		Settings:    result.Settings{Mode: "quick", Suite: "encryption", Placement: []string{string(result.OneCore)}},
		Environment: result.Environment{CPU: "Some CPU", CPUs: 2},
		Encryption: &result.Encryption{
			Wires: []result.EncryptionWire{
				{Network: beeline, MTU: 1500, Payload: 65536, Frames: 20, Marked: 8, Inside: 20},
				{Network: "beeline-wireguard", MTU: 1500, Kind: "wireguard", Payload: 65536, Frames: 200, EncryptedBytes: 280000},
			},
			Paced: []result.EncryptionRate{{MTU: 1500, Maximum: 2, Slowest: "beeline-ipsec", Rate: 0.2}},
		},
	}
	stream := result.Workload{Name: "tcp_stream_128k", Title: "TCP_STREAM", Tool: "netperf", Metric: result.Throughput, Unit: "Gbit/s", Better: "higher", Work: "GB"}
	rr := result.Workload{Name: "tcp_rr", Title: "TCP_RR", Tool: "netperf", Metric: result.Rate, Unit: "/s", Better: "higher", Work: "transaction"}
	paced := workload.NewPaced(0).Info()
	for _, w := range []result.Workload{stream, paced, rr} {
		w.Of, w.MTU = w.Name, 1500
		w.Name = workload.AtMTUName(w.Of, w.MTU)
		run.Workloads = append(run.Workloads, w)
	}
	networks := []struct {
		name        string
		stream, rr  float64
		seconds     float64 // of CPU time while paced
		unsupported string
	}{
		{stats.Baseline, 20, 10000, 0.01, ""}, {beeline, 18, 9000, 0.012, ""},
		{"beeline-wireguard", 3, 5000, 0.2, ""}, {"beeline-ipsec", 2, 4800, 0.1, ""},
		{"kernel-wireguard", 3, 5000, 0.21, ""}, {"kernel-ipsec", 2.5, 4800, 0.1, ""},
	}
	for _, n := range networks {
		run.Networks = append(run.Networks, result.Network{Name: n.name, Unsupported: n.unsupported})
	}
	for round := range 7 {
		run.Rounds = append(run.Rounds, result.Round{Index: round})
		for _, n := range networks {
			factor := 1 + 0.001*float64(round)
			for _, of := range []struct {
				workload string
				values   map[string]float64
				cpu      float64
			}{
				{stream.Name, map[string]float64{result.Throughput: n.stream * factor}, 1},
				{paced.Name, map[string]float64{result.Throughput: 0.2, result.CPUSender: 60 * n.seconds, result.CPUReceiver: 40 * n.seconds}, n.seconds * factor},
				{rr.Name, map[string]float64{result.Rate: n.rr * factor}, 1},
			} {
				run.Samples = append(run.Samples, result.Sample{
					Round: round, Network: n.name, Workload: workload.AtMTUName(of.workload, 1500), Path: result.CrossNode, Placement: result.OneCore,
					Procs: 1, Seconds: 1, Values: of.values, CPU: result.CPU{System: of.cpu},
				})
			}
		}
	}
	run.Summary = stats.Summarize(run)
	return run
}

// row is the only row of a table whose cells begin so.
func rowOf(t *testing.T, table *Table, cells ...string) []string {
	t.Helper()
	var found [][]string
	for _, r := range table.Rows {
		texts := []string{}
		for _, c := range r.Cells {
			texts = append(texts, c.Text)
		}
		if all := append([]string{r.Name}, texts...); strings.HasPrefix(strings.Join(all, "|"), strings.Join(cells, "|")+"|") {
			found = append(found, all)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d rows %v in %q", len(found), cells, table.Title)
	}
	return found[0]
}

// TestEncryptionClaims has findings that a run confirms, refutes, and leaves open.
func TestEncryptionClaims(t *testing.T) {
	emulatedRun, short, without := encryptionRun(), encryptionRun(), encryptionRun()
	emulatedRun.Environment.CPU = "QEMU TCG CPU version 2.5+"
	short.Samples = short.Samples[:3*6]
	without.Samples = nil
	for name, test := range map[string]struct {
		run  *result.Run
		want map[string]string
	}{
		"measured": {encryptionRun(), map[string]string{
			"WireGuard reaches the higher maximum": confirmed, "IPsec has the higher TCP_RR": notConfirmed,
			"IPsec needs less CPU of both at an equal rate": confirmed, "IPsec needs less of the sender's CPU at an equal rate": notDecidable + ": both nodes are on this machine",
		}},
		"emulated":   {emulatedRun, map[string]string{"WireGuard reaches the higher maximum": notDecidable + ": emulated", "IPsec has the higher TCP_RR": notDecidable + ": emulated"}},
		"one round":  {short, map[string]string{"WireGuard reaches the higher maximum": notDecidable + ": too few rounds"}},
		"no samples": {without, map[string]string{"WireGuard reaches the higher maximum": notDecidable + ": not measured"}},
	} {
		t.Run(name, func(t *testing.T) {
			table := newView(test.run).claims()
			for finding, want := range test.want {
				row := rowOf(t, table, beeline, finding, "1500")
				if got := row[len(row)-1]; got != want {
					t.Errorf("%s: %q, want %q (%v)", finding, got, want, row)
				}
			}
		})
	}
	if row := rowOf(t, newView(encryptionRun()).claims(), "kernel", "WireGuard reaches the higher maximum", "1500"); row[4] != "1.265" && row[4] != "1.26" {
		t.Errorf("published quotient in %v, want 4.3 ÷ 3.4", row)
	}
}

// TestEncryptionTargets compares with the kernel's own of the same kind.
func TestEncryptionTargets(t *testing.T) {
	got := map[string]string{}
	for _, one := range newView(encryptionRun()).encryptionTargets() {
		got[one.name] = one.result()
	}
	for kind, want := range map[string]string{"wireguard": met, "ipsec": missed} {
		name := fmt.Sprintf("beeline-%s against kernel-%s, TCP_STREAM", kind, kind)
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	missing := encryptionRun()
	for i := range missing.Samples {
		if missing.Samples[i].Network == "kernel-ipsec" {
			missing.Samples[i].Error = "gone"
		}
	}
	for _, one := range newView(missing).encryptionTargets() {
		if strings.Contains(one.name, "kernel-ipsec") && one.result() != notMeasured {
			t.Errorf("%s without the kernel's own: %s", one.name, one.result())
		}
	}
}

// TestEmulatedIsSaid has no figure of an emulated processor without a caution.
func TestEmulatedIsSaid(t *testing.T) {
	run := encryptionRun()
	if strings.Contains(strings.Join(New(run).Cautions, " "), "emulated") {
		t.Error("a processor is called emulated")
	}
	run.Environment.CPU = "QEMU TCG CPU version 2.5+"
	if !strings.Contains(strings.Join(New(run).Cautions, " "), "no figure is a speed") {
		t.Error("nothing says that the processor is emulated")
	}
}

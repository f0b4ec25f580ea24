package cni_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// BenchmarkAdd measures one ADD and one DEL from the start of the process to its end, as a runtime sees
// it, with an agent that has no datapath; and the same of ptp with host-local, the reference. IPv4 only: with
// IPv6, ptp waits almost two seconds for duplicate address detection.
func BenchmarkAdd(b *testing.B) {
	networks := map[string]func(n *bench) (plugin, stdin string){
		"beeline": func(n *bench) (string, string) {
			return "beeline-cni", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","type":"beeline-cni","agentSocket":%q}`, n.socket)
		},
		"ptp": func(n *bench) (string, string) {
			return "ptp", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","type":"ptp","ipam":{"type":"host-local","dataDir":%q,
				"ranges":[[{"subnet":"10.77.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`, n.t.TempDir())
		},
	}
	for name, network := range networks {
		b.Run(name, func(b *testing.B) {
			n := newBench(b, netip.MustParsePrefix("10.77.0.0/24"))
			plugin, stdin := network(n)
			rt, _ := n.pod("web")
			took := map[string][]time.Duration{}
			for b.Loop() {
				for _, command := range []string{"ADD", "DEL"} {
					start := time.Now()
					if e := n.executeAs(plugin, command, rt, stdin); e.Code != 0 {
						b.Fatal(e)
					}
					took[command] = append(took[command], time.Since(start))
				}
			}
			for command, times := range took {
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, command+"-p50-ms")
				b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, command+"-p99-ms")
			}
		})
	}
}

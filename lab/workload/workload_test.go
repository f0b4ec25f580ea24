package workload

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
)

// The files in testdata are what the tools of Debian 12 printed over a veth pair.
func captured(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func wantValues(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		g, ok := got[name]
		if !ok || math.Abs(g-v) > 1e-6*math.Abs(v) {
			t.Errorf("%s: %v, want %v", name, g, v)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: unexpected value %v", name, got[name])
		}
		if _, ok := result.MetricNamed(name); !ok {
			t.Errorf("%s is not a metric of the result file", name)
		}
	}
}

func TestNetperfRead(t *testing.T) {
	tests := map[string]struct {
		workload netperf
		files    []string
		want     map[string]float64
	}{
		"TCP_RR": {rr, []string{"netperf-tcp_rr.txt"}, map[string]float64{
			result.Rate: 139508.285, result.Transactions: 139532, result.RTT: 7.168,
			result.RTTP50: 7, result.RTTP90: 7, result.RTTP99: 11, result.Retransmits: 0,
			result.SendBuffer: 69120, result.ReceiveBuffer: 2085188,
		}},
		"TCP_STREAM": {stream128k, []string{"netperf-tcp_stream.txt"}, map[string]float64{
			result.Throughput: 10.52148, result.Bytes: 1315569664, result.Retransmits: 0,
			result.SendBuffer: 2097152, result.ReceiveBuffer: 2097152,
		}},
		// -1 retransmits means that there is no such count, not a negative one.
		"UDP_RR": {udpRR, []string{"netperf-udp_rr.txt"}, map[string]float64{
			result.Rate: 149877.959, result.Transactions: 149888, result.RTT: 6.672,
			result.RTTP50: 6, result.RTTP90: 9, result.RTTP99: 10,
			result.SendBuffer: 212992, result.ReceiveBuffer: 212992,
		}},
		"two processes": {rr, []string{"netperf-tcp_rr.txt", "netperf-tcp_rr.txt"}, map[string]float64{
			result.Rate: 2 * 139508.285, result.Transactions: 2 * 139532, result.Skew: 0, result.Retransmits: 0,
			result.SendBuffer: 69120, result.ReceiveBuffer: 2085188,
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var texts []string
			for _, f := range test.files {
				texts = append(texts, captured(t, f))
			}
			got, err := test.workload.read(texts)
			if err != nil {
				t.Fatal(err)
			}
			wantValues(t, got, test.want)
		})
	}
}

// One process ran for 1 s at 1000/s, the other for 2 s at 500/s: 2000 transactions in 2 s, not 1500/s.
func TestNetperfCommonInterval(t *testing.T) {
	text := func(calls, rate string) string {
		return "THROUGHPUT=" + rate + "\nTRANSACTION_RATE=" + rate + "\nLOCAL_SEND_CALLS=" + calls + "\n"
	}
	got, err := rr.read([]string{text("1000", "1000"), text("1000", "500")})
	if err != nil {
		t.Fatal(err)
	}
	if got[result.Rate] != 1000 || got[result.Skew] != 1 {
		t.Errorf("rate %v, skew %v; want 1000, 1", got[result.Rate], got[result.Skew])
	}
}

func TestNetperfErrors(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"refused":      {captured(t, "netperf-refused.txt"), "could not establish the control connection"},
		"nothing":      {"", "gave no result"},
		"unknown unit": {"THROUGHPUT=1\nTHROUGHPUT_UNITS=MBytes/s", "unknown unit"},
		"no number":    {"THROUGHPUT=fast", "THROUGHPUT"},
		"no work":      {"THROUGHPUT=0\nTRANSACTION_RATE=0\nLOCAL_SEND_CALLS=0", "did no work"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := rr.read([]string{test.text})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q in it", err, test.want)
			}
		})
	}
}

func TestParseSockperf(t *testing.T) {
	got, err := parseSockperf(strings.NewReader(captured(t, "sockperf-full-rtt.csv")))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 49 || got[0] != 110.802 || got[1] != 107.673 {
		t.Errorf("%d round trips, beginning %v", len(got), got[:2])
	}
	if _, err := parseSockperf(strings.NewReader(captured(t, "sockperf-half.csv"))); err == nil || !strings.Contains(err.Error(), "half") {
		t.Errorf("half round trips: %v", err)
	}
	if _, err := parseSockperf(strings.NewReader("sockperf: No valid observations found.\n")); err == nil {
		t.Error("no observations: no error")
	}
}

func TestSockperfSeconds(t *testing.T) {
	// 0.45 s of the run time are left out, so half a second needs one, 0.6 s need two.
	for wanted, want := range map[time.Duration]int{500 * time.Millisecond: 1, 600 * time.Millisecond: 2, 2 * time.Second: 3} {
		if got := sockperfTCP.whole(wanted); got != want {
			t.Errorf("%v: %d s, want %d", wanted, got, want)
		}
	}
}

func TestParseIperf(t *testing.T) {
	tcp, err := parseIperf(captured(t, "iperf3-tcp.json"))
	if err != nil {
		t.Fatal(err)
	}
	rate := 1401946112 * 8 / 1.000362 / 1e9
	wantValues(t, iperfTCPValues([]iperfReport{tcp}), map[string]float64{
		result.Bytes: 1401946112, result.Throughput: rate, result.Retransmits: 0,
	})
	wantValues(t, iperfTCPValues([]iperfReport{tcp, tcp}), map[string]float64{
		result.Bytes: 2 * 1401946112, result.Throughput: 2 * rate, result.Retransmits: 0, result.Skew: 0,
	})

	udp, err := parseIperf(captured(t, "iperf3-udp.json"))
	if err != nil {
		t.Fatal(err)
	}
	wantValues(t, iperfUDPValues(udp), map[string]float64{
		result.Bytes: 289466800, result.Messages: 320076 - 113314,
		result.Throughput: 289466800 * 8 / 1.001816 / 1e9, result.Loss: 100 * (1 - 289466800.0/448182000.0),
		result.SendBuffer: 2097152, result.ReceiveBuffer: 2097152,
	})

	warned, err := parseIperf("warning: UDP block size 1400 exceeds TCP MSS 1358\n" + captured(t, "iperf3-udp.json"))
	if err != nil || warned != udp {
		t.Errorf("with a warning before it: %v, %v", warned, err)
	}
	if _, err := parseIperf(`{"end":{},"error":"the server is busy running a test. try again later"}`); !errors.Is(err, errIperfBusy) {
		t.Errorf("busy: %v", err)
	}
	if _, err := parseIperf(captured(t, "iperf3-refused.json")); err == nil || !strings.Contains(err.Error(), "unable to connect") {
		t.Errorf("refused: %v", err)
	}
	if _, err := parseIperf("iperf3: parameter error"); err == nil {
		t.Error("no JSON: no error")
	}
}

func TestHasListener(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:3241 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0200000A:2B67 0100000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
`
	if !hasListener(table, 12865) || hasListener(table, 11111) || hasListener(table, 80) {
		t.Error("12865 listens, 11111 is a connection, 80 is nothing")
	}
}

func TestSelect(t *testing.T) {
	names := map[string]bool{}
	for _, w := range All() {
		i := w.Info()
		if names[i.Name] {
			t.Errorf("two workloads %q", i.Name)
		}
		names[i.Name] = true
		if i.Title == "" || i.Description == "" || i.Tool == "" || (i.Better != "higher" && i.Better != "lower") {
			t.Errorf("%s: something is not said: %+v", i.Name, i)
		}
		if m, ok := result.MetricNamed(i.Metric); !ok || m.Unit != i.Unit || m.Better != i.Better {
			t.Errorf("%s: metric %q (%s, %s) is not as in package result", i.Name, i.Metric, i.Unit, i.Better)
		}
	}
	got, err := Select([]string{"udp_rr", "tcp_rr"})
	if err != nil || len(got) != 2 || got[0].Info().Name != "tcp_rr" {
		t.Errorf("%v, %v; want them in the order of All", got, err)
	}
	if _, err := Select([]string{"tcp_rr", "nonsense"}); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("unknown name: %v", err)
	}
}

package workload

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/lab/result"
)

func recorded(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestParseRedis(t *testing.T) {
	text := "WARNING: Could not fetch server CONFIG\n" + recorded(t, "redis.csv")
	got, err := parseRedis(text, "GET")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{result.Rate: 105263.16, result.RTT: 301, result.RTTP50: 279, result.RTTP99: 959}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err := parseRedis(text, "SET"); err != nil || got[result.Rate] != 96618.36 {
		t.Errorf("SET: %v, %v", got, err)
	}
	for name, text := range map[string]string{
		"refused": "Could not connect to Redis at 127.0.0.1:6380: Connection refused\n",
		"no row":  strings.Join(strings.SplitAfter(recorded(t, "redis.csv"), "\n")[:2], ""),
		"garbled": strings.ReplaceAll(recorded(t, "redis.csv"), "105263.16", "fast"),
	} {
		if got, err := parseRedis(text, "GET"); err == nil {
			t.Errorf("%s: %v without an error", name, got)
		}
	}
}

func TestParseWrk(t *testing.T) {
	got, err := parseWrk(recorded(t, "wrk-keepalive.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		result.Rate: 102139.79, result.Transactions: 212376,
		result.RTT: 2790, result.RTTP50: 85, result.RTTP90: 6000, result.RTTP99: 45500,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err := parseWrk(recorded(t, "wrk-close.txt")); err != nil || got[result.Rate] != 28457.08 {
		t.Errorf("close: %v, %v", got, err)
	}
	text := recorded(t, "wrk-close.txt")
	for name, text := range map[string]string{
		"refused": "unable to connect to 127.0.0.1:8081 Connection refused\n",
		"errors":  strings.Replace(text, "Requests/sec", "  Socket errors: connect 0, read 3, write 0, timeout 0\nRequests/sec", 1),
		"status":  strings.Replace(text, "Requests/sec", "  Non-2xx or 3xx responses: 7\nRequests/sec", 1),
		"nothing": strings.Replace(text, "56931 requests", "0 requests", 1),
	} {
		if got, err := parseWrk(text); err == nil {
			t.Errorf("%s: %v without an error", name, got)
		}
	}
}

func TestNginxConfig(t *testing.T) {
	text := nginxConfig("/tmp/x", netip.MustParseAddr("fd00::1"), []int{8080, 8081})
	for _, want := range []string{"listen [fd00::1]:8080; listen [fd00::1]:8081;", "pid /tmp/x/pid;", "proxy_temp_path /tmp/x/proxy;", strings.Repeat("x", 1024)} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%.400s", want, text)
		}
	}
}

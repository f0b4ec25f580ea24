package natports

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/beeline-cni/beeline/internal/agent/value"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Whatever happens to the range and the agent, the reservations of others remain in the end, and nothing else.
func TestReservedPortsAreGivenBack(t *testing.T) {
	netns := testenv.NewNetns(t)
	const key, localKey = "/proc/sys/net/ipv4/ip_local_reserved_ports", "/proc/sys/net/ipv4/ip_local_port_range"
	err := netns.Do(func(ns.NetNS) error {
		expect := func(step, want string) {
			got, err := os.ReadFile(key)
			if err != nil || strings.TrimSpace(string(got)) != want {
				t.Errorf("%s: reserved are %q, want %q (%v)", step, got, want, err)
			}
		}
		local := func(step, want string) {
			got, err := os.ReadFile(localKey)
			if err != nil || strings.Join(strings.Fields(string(got)), "-") != want {
				t.Errorf("%s: ports of sockets are chosen from %q, want %s (%v)", step, got, want, err)
			}
		}
		if err := errors.Join(os.WriteFile(key, []byte("8080,50000"), 0), os.WriteFile(localKey, []byte("32768 60999"), 0)); err != nil {
			return err
		}
		translates, stateDir, log := true, t.TempDir(), slog.New(slog.DiscardHandler)
		reserve := func(first, last uint16) {
			if err := Reserve(stateDir, value.PortRange{First: first, Last: last}, translates, log); err != nil {
				t.Fatal(err)
			}
		}
		reserve(40000, 65535)
		expect("first", "8080,40000-65535")
		local("first", "32768-39999")
		reserve(40000, 65535)
		expect("again", "8080,40000-65535")
		for range 3 {
			if err := os.WriteFile(key, []byte("8080,50000"), 0); err != nil {
				return err
			}
			reserve(40000, 65535)
			expect("after the list was reset", "8080,40000-65535")
		}
		if r, err := Load(stateDir); err != nil || len(r.Added) > 2 {
			t.Errorf("written are %v, %v: more each time", r.Added, err)
		}
		if err := os.WriteFile(localKey, []byte("30001 60000"), 0); err != nil {
			return err
		}
		reserve(40000, 65535)
		local("a foreign choice", "30001-39999")
		reserve(45000, 46000)
		expect("another range", "8080,45000-46000,50000")
		local("another range", "30001-44999")
		translates = false
		reserve(45000, 46000)
		expect("nothing is translated", "8080,50000")
		local("nothing is translated", "30001-60000")
		translates = true
		reserve(45000, 46000)
		if err := Release(stateDir); err != nil {
			return err
		}
		expect("uninstalled", "8080,50000")
		local("uninstalled", "30001-60000")
		reserve(45000, 46000)
		if err := os.WriteFile(localKey, []byte("20001 60000"), 0); err != nil {
			return err
		}
		if err := Release(stateDir); err != nil {
			return err
		}
		local("foreign choice before uninstall", "20001-60000")
		return Release(stateDir)
	})
	if err != nil {
		t.Fatal(err)
	}
}

package plugin

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// here runs a shell script as a plugin, on this machine, and returns the calls that were observed.
func here(t *testing.T, script string) (out string, calls []string, err error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tried"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	e := &executor{netns: testbed.Netns{}}
	ctx := Observe(t.Context(), func(c Call) { calls = append(calls, c.Command) })
	path, err := e.FindInPath("tried", []string{"/nowhere", dir})
	if err != nil {
		t.Fatal(err)
	}
	b, err := e.ExecPlugin(ctx, path, []byte("configuration"), []string{"CNI_COMMAND=ADD"})
	return string(b), calls, err
}

func TestExecutorGivesWhatPluginsSay(t *testing.T) {
	out, calls, err := here(t, `read -r line; printf '%s for %s' "$CNI_COMMAND" "$line"`)
	if want := "ADD for configuration"; out != want || err != nil {
		t.Errorf("the plugin says %q, %v; want %q", out, err, want)
	}
	if d := cmp.Diff([]string{"ADD"}, calls); d != "" {
		t.Errorf("observed (-want +got):\n%s", d)
	}
}

func TestExecutorFails(t *testing.T) {
	_, calls, err := here(t, `echo '{"code": 11, "msg": "not ready"}'; exit 1`)
	var said *types.Error
	if !errors.As(err, &said) || said.Code != 11 || said.Msg != "not ready" {
		t.Errorf("a plugin that says why: %v", err)
	}
	if len(calls) != 1 {
		t.Errorf("%v observed of a plugin that fails", calls)
	}
	_, _, err = here(t, `echo lost >&2; exit 3`)
	if errors.As(err, &said) || err == nil || !strings.Contains(err.Error(), "exit status 3: lost") {
		t.Errorf("a plugin that only fails: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	ip := func(s string) *types100.IPConfig { return &types100.IPConfig{Address: net.IPNet{IP: net.ParseIP(s)}} }
	got := addresses(&types100.Result{IPs: []*types100.IPConfig{ip("fd00::1"), ip("10.0.0.1"), {}, ip("fd00::2")}})
	want := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

package cni_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

func TestEveryVersionThroughLibcni(t *testing.T) {
	for _, cniVersion := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(cniVersion, func(t *testing.T) {
			b := newBench(t)
			list := b.list(cniVersion)
			rt, netns := b.pod("web")
			since := func(v string) bool { ok, _ := version.GreaterThanOrEqualTo(cniVersion, v); return ok }

			raw, err := b.add(list, rt)
			if err != nil {
				t.Fatal(err)
			}
			if raw.Version() != cniVersion {
				t.Errorf("result is of version %s", raw.Version())
			}
			result, err := current.NewResultFromResult(raw)
			if err != nil {
				t.Fatal(err)
			}
			host := device.HostName("web", "eth0")
			if len(result.Interfaces) != 2 || result.Interfaces[0].Name != host || result.Interfaces[1].Name != "eth0" || result.Interfaces[1].Sandbox != netns.Path() {
				t.Errorf("interfaces %v", result.Interfaces)
			}
			if len(result.IPs) != 2 || result.IPs[0].Address.String() != "10.77.0.1/32" || result.IPs[1].Address.String() != "fd77::1/128" ||
				*result.IPs[0].Interface != 1 || result.IPs[0].Gateway.String() != "169.254.1.1" {
				t.Errorf("addresses %v", result.IPs)
			}
			if e := b.agent.known()[agentapi.Attachment{ContainerID: "web", IfName: "eth0"}]; e.Pod != (agentapi.PodRef{Namespace: "default", Name: "web", UID: "u-web"}) || e.Network != "pods" {
				t.Errorf("the agent's endpoint is %+v", e)
			}

			if since("0.4.0") {
				if err := b.check(list, rt); err != nil {
					t.Errorf("CHECK: %v", err)
				}
				removeDefaultRoute(t, netns)
				wantCode(t, b.check(list, rt), 102, "route")
			}
			_, err = b.add(list, rt)
			wantCode(t, err, 100, "attached already")
			if len(b.agent.known()) != 1 {
				t.Error("a repeated ADD damaged the first")
			}
			if since("1.1.0") {
				if err := b.do(func() error { return b.cni.GetStatusNetworkList(context.Background(), list) }); err != nil {
					t.Errorf("STATUS: %v", err)
				}
			}
			for range 2 {
				if err := b.del(list, rt); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
			b.expectEmpty()
		})
	}
}

func removeDefaultRoute(t *testing.T, netns ns.NetNS) {
	t.Helper()
	err := netns.Do(func(ns.NetNS) error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		for _, route := range routes {
			if route.Gw != nil {
				return netlink.RouteDel(&route)
			}
		}
		return errors.Join(err, errors.New("no default route to remove"))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUnknownVersionsAreRejected(t *testing.T) {
	b := newBench(t)
	for _, cniVersion := range []string{"0.2.0", "0.3.0", "9.9.9"} {
		rt, _ := b.pod("web")
		out := b.execute("ADD", rt, fmt.Sprintf(`{"cniVersion":%q,"name":"pods","type":"beeline-cni"}`, cniVersion))
		if out.Code != types.ErrIncompatibleCNIVersion {
			t.Errorf("%s: got %+v, want code 1", cniVersion, out)
		}
	}
	b.expectEmpty()
}

func TestMalformedConfigurations(t *testing.T) {
	b := newBench(t)
	rt, _ := b.pod("web")
	tests := []struct {
		name, stdin string
		code        uint
		says        string
	}{
		{"no JSON", `{"cniVersion":`, types.ErrDecodingFailure, "unexpected end of JSON"},
		{"not an object", `[]`, types.ErrDecodingFailure, "array"},
		{"no name", `{"cniVersion":"1.1.0","type":"beeline-cni"}`, types.ErrInvalidNetworkConfig, "missing network name"},
		{"version's type", `{"cniVersion":1,"name":"pods"}`, types.ErrDecodingFailure, "cniVersion"},
		{"unknown field", `{"cniVersion":"1.1.0","name":"pods","bridge":"x"}`, types.ErrInvalidNetworkConfig, `unknown field "bridge"`},
		{"wrong type", `{"cniVersion":"1.1.0","name":"pods","agentSocket":[]}`, types.ErrInvalidNetworkConfig, `field "agentSocket": got array, want string`},
		{"relative socket", `{"cniVersion":"1.1.0","name":"pods","agentSocket":"a.sock"}`, types.ErrInvalidNetworkConfig, "not an absolute path"},
	}
	for _, test := range tests {
		for _, command := range []string{"ADD", "DEL"} {
			if e := b.execute(command, rt, test.stdin); e.Code != test.code || !strings.Contains(e.Error(), test.says) {
				t.Errorf("%s %s: got %+v, want code %d with %q", command, test.name, e, test.code, test.says)
			}
		}
	}
	b.expectEmpty()
}

func TestBadNamespaces(t *testing.T) {
	b := newBench(t)
	list := b.list("1.1.0")
	rt, _ := b.pod("web")
	rt.NetNS = filepath.Join(t.TempDir(), "gone")
	_, err := b.add(list, rt)
	wantCode(t, err, types.ErrInvalidNetNS, "gone")

	rt.NetNS = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(rt.NetNS, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = b.add(list, rt)
	wantCode(t, err, types.ErrInvalidNetNS, "file")

	rt.NetNS = b.node.Path()
	_, err = b.add(list, rt)
	wantCode(t, err, types.ErrInvalidNetNS, "the node's own network namespace")
	b.expectEmpty()
}

func TestVersionCommand(t *testing.T) {
	b := newBench(t)
	info, err := b.cni.GetVersionInfo(context.Background(), "beeline-cni")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(info.SupportedVersions()); got != "[0.3.1 0.4.0 1.0.0 1.1.0]" {
		t.Errorf("supported versions %s", got)
	}
}

package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

func TestAddPrintsResult(t *testing.T) {
	w := newFakeNode()
	if err := w.plugin().Add(args(conf(`,"agentSocket":"/x/a.sock","dns":{"nameservers":["10.0.0.10"]}`))); err != nil {
		t.Fatal(err)
	}
	if w.socket != "/x/a.sock" {
		t.Errorf("asked at %s", w.socket)
	}
	host := device.HostName("c1", "eth0")
	want := fmt.Sprintf(`{
		"cniVersion": "1.1.0",
		"interfaces": [
			{"name": %q, "mac": "02:00:00:00:00:01", "mtu": 1450},
			{"name": "eth0", "mac": "06:00:00:00:00:02", "mtu": 1450, "sandbox": "/run/netns/none"}],
		"ips": [
			{"interface": 1, "address": "10.1.0.5/32", "gateway": "169.254.1.1"},
			{"interface": 1, "address": "fd00::5/128", "gateway": "fe80::1"}],
		"routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}, {"dst": "::/0", "gw": "fe80::1"}],
		"dns": {"nameservers": ["10.0.0.10"]}}`, host)
	if diff := cmp.Diff(object(t, want), object(t, w.stdout.String())); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	wantAdd := agentapi.AddRequest{Endpoint: agentapi.Endpoint{
		Attachment: pod, Network: "pods", Netns: "/run/netns/none", Pod: agentapi.PodRef{Namespace: "default", Name: "web", UID: "u1"},
		HostDevice: host, HostIfIndex: 7, HostMAC: "02:00:00:00:00:01", PodMAC: "06:00:00:00:00:02",
	}}
	if diff := cmp.Diff([]agentapi.AddRequest{wantAdd}, w.added); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if got := w.configured["eth0"]; got.MTU != 1450 || got.HostMAC.String() != "02:00:00:00:00:01" ||
		fmt.Sprint(got.Addresses, got.Gateways) != "[10.1.0.5/32 fd00::5/128] [169.254.1.1 fe80::1]" {
		t.Errorf("configured %+v", got)
	}
}

func object(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestAddUndoesEveryStep(t *testing.T) {
	tests := []struct {
		fails string
		err   error
		code  uint
		says  string
		steps string
	}{
		{"find device", errBroken, 999, "find the pod's device: broken on purpose", "find device"},
		{"agent prepare", agentapi.Errorf(agentapi.CodeNotReady, "node n is not ready"), 11, "prepare the endpoint: node n is not ready", "find device,agent prepare"},
		{"agent prepare", agentapi.Errorf(agentapi.CodeNoPool, `there is no IPPool "office"`), ErrNoPool, "there is no IPPool \"office\"; `kubectl get ippools`", "find device,agent prepare"},
		{"agent add", agentapi.Errorf(agentapi.CodePoolExhausted, "IPPool office has no free IPv4 address"), ErrExhausted, "no free IPv4 address (`kubectl get ipclaims`", "find device,agent prepare,create,agent add,delete device"},
		{"agent prepare", agentapi.Errorf(agentapi.CodeNoDevice, "no netkit here"), ErrNoDevice, "no netkit here; request another kind", "find device,agent prepare"},
		{"create", errBroken, 999, "create the pod's device: broken on purpose", "find device,agent prepare,create"},
		{"create", fmt.Errorf("create pair: %w", syscall.EEXIST), ErrExists, "file exists", "find device,agent prepare,create"},
		{"agent add", errBroken, 999, "add endpoint: broken on purpose", "find device,agent prepare,create,agent add,delete device"},
		{"agent add", agentapi.ErrNoAgent, 11, "is not running on this node (no process listens at /run/beeline/agent.sock)", "find device,agent prepare,create,agent add,delete device"},
		{"agent add", agentapi.Errorf(agentapi.CodeNotReady, "node n is not ready: no node yet"), 11, "add endpoint: node n is not ready: no node yet (`beeline status`", "find device,agent prepare,create,agent add,delete device"},
		{"agent add", agentapi.Errorf(agentapi.CodeExhausted, "no free address in 10.1.0.0/24"), ErrExhausted, "no free address in 10.1.0.0/24: delete pods", "find device,agent prepare,create,agent add,delete device"},
		{"agent add", agentapi.Errorf(agentapi.CodeConflict, "c1 is there"), ErrExists, "c1 is there; DEL it first", "find device,agent prepare,create,agent add,delete device"},
		{"agent add", agentapi.Errorf(agentapi.CodePortTaken, "port 80/TCP is taken"), ErrPortTaken, "port 80/TCP is taken; give one of the two pods", "find device,agent prepare,create,agent add,delete device"},
		{"agent add", agentapi.Errorf(agentapi.CodeInvalid, "hostMAC: empty"), 999, "have the same version: hostMAC: empty", "find device,agent prepare,create,agent add,delete device"},
		{"agent add", context.DeadlineExceeded, 11, "did not reply in time at /run/beeline/agent.sock", "find device,agent prepare,create,agent add,delete device"},
		{"bad response", errBroken, 999, "response of the agent: addresses []", "find device,agent prepare,create,agent add,agent delete,delete device"},
		{"find default routes", errBroken, 999, "find the pod's default routes: broken on purpose", "find device,agent prepare,create,agent add,find default routes,agent delete,delete device"},
		{"configure", errBroken, 999, "configure the pod's device: broken on purpose", "find device,agent prepare,create,agent add,find default routes,configure,agent delete,delete device"},
		{"print", errBroken, types.ErrIOFailure, "print result: broken on purpose", "find device,agent prepare,create,agent add,find default routes,configure,print,agent delete,delete device"},
	}
	for _, test := range tests {
		t.Run(test.fails+" "+test.err.Error(), func(t *testing.T) {
			w := newFakeNode()
			w.fail[test.fails] = test.err
			err := w.plugin().Add(args(conf("")))
			if code := codeOf(t, err); code != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got code %d, %v; want %d with %q", code, err, test.code, test.says)
			}
			if steps := strings.Join(w.steps, ","); steps != test.steps {
				t.Errorf("steps\ngot  %s\nwant %s", steps, test.steps)
			}
			if len(w.devices) != 0 || len(w.endpoints) != 0 || w.stdout.Len() != 0 {
				t.Errorf("left behind: devices %v, endpoints %v, output %q", w.devices, w.endpoints, &w.stdout)
			}
		})
	}
}

func TestAddReportsFailedCleanup(t *testing.T) {
	w := newFakeNode()
	w.fail["configure"] = errBroken
	w.fail["agent delete"] = agentapi.ErrNoAgent
	w.fail["delete device"] = errBroken
	err := w.plugin().Add(args(conf("")))
	for _, says := range []string{"configure the pod's device", "undo: delete the endpoint: no agent responds", "undo: delete the pod's device: broken on purpose"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q in it", err, says)
		}
	}
	if codeOf(t, err) != 999 {
		t.Errorf("code %d", codeOf(t, err))
	}
}

func TestRepeatedAddLeavesTheFirstAlone(t *testing.T) {
	w := newFakeNode()
	if err := w.plugin().Add(args(conf(""))); err != nil {
		t.Fatal(err)
	}
	w.steps = nil
	err := w.plugin().Add(args(conf("")))
	if codeOf(t, err) != ErrExists || !strings.Contains(err.Error(), "attached already") {
		t.Errorf("got %v", err)
	}
	if len(w.devices) != 1 || len(w.endpoints) != 1 || strings.Join(w.steps, ",") != "find device" {
		t.Errorf("devices %v, endpoints %v, steps %v", w.devices, w.endpoints, w.steps)
	}
}

func TestAddRejectsTheNodesOwnNamespace(t *testing.T) {
	w := newFakeNode()
	a := args(conf(""))
	a.Netns = "/proc/self/ns/net"
	if err := w.plugin().Add(a); codeOf(t, err) != types.ErrInvalidNetNS || len(w.steps) != 0 {
		t.Errorf("got %v after %v", err, w.steps)
	}
}

func TestPodConfigRejectsBadResponses(t *testing.T) {
	for _, bad := range [][]netip.Addr{nil, {{}}} {
		if err := checkAddresses(&agentapi.Endpoint{Addresses: bad}); err == nil || !strings.Contains(err.Error(), "response of the agent: addresses [") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

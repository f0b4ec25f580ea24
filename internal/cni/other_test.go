package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

func TestDel(t *testing.T) {
	tests := []struct {
		name  string
		fail  map[string]error
		code  uint // 0: succeeds
		says  string
		warns string
	}{
		{"all is well", nil, 0, "", ""},
		{"agent absent", map[string]error{"agent delete": fmt.Errorf("ask: %w", agentapi.ErrNoAgent)}, 0, "", "device deleted without the agent"},
		{"agent starting", map[string]error{"agent delete": agentapi.Errorf(agentapi.CodeNotReady, "soon")}, 0, "", "soon"},
		{"agent stuck", map[string]error{"agent delete": context.DeadlineExceeded}, 0, "", "deadline"},
		{"agent fails", map[string]error{"agent delete": errBroken}, 999, "delete endpoint: broken on purpose", ""},
		{"device stays", map[string]error{"delete device": errBroken}, 999, "delete the pod's device: broken on purpose", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newFakeNode()
			if err := w.plugin().Add(args(conf(""))); err != nil {
				t.Fatal(err)
			}
			w.fail = test.fail
			err := w.plugin().Del(args(conf("")))
			if test.code == 0 && err != nil {
				t.Fatal(err)
			}
			if test.code != 0 && (codeOf(t, err) != test.code || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("got %v, want code %d with %q", err, test.code, test.says)
			}
			if _, stuck := test.fail["delete device"]; !stuck && len(w.devices) != 0 {
				t.Errorf("device is still there: %v", w.devices)
			}
			if !strings.Contains(w.stderr.String(), test.warns) {
				t.Errorf("stderr %q, want %q", &w.stderr, test.warns)
			}
			w.fail = nil
			for range 2 { // again, and nothing there
				if err := w.plugin().Del(args(conf(""))); err != nil {
					t.Errorf("repeated: %v", err)
				}
			}
			if len(w.devices) != 0 || len(w.endpoints) != 0 {
				t.Errorf("left: %v %v", w.devices, w.endpoints)
			}
			if first, last := w.deleted[0], w.deleted[len(w.deleted)-1]; first.HostIfIndex != hostIndex || last.HostIfIndex != agentapi.NoDevice {
				t.Errorf("requests to the agent: %+v, and with no device %+v", first, last)
			}
		})
	}
}

// checked runs ADD, changes the node and the result, and runs CHECK.
func checked(t *testing.T, change func(w *fakeNode, result map[string]any)) (*fakeNode, error) {
	t.Helper()
	w := newFakeNode()
	if err := w.plugin().Add(args(conf(""))); err != nil {
		t.Fatal(err)
	}
	result := object(t, w.stdout.String()).(map[string]any)
	change(w, result)
	prev, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return w, w.plugin().Check(args(conf(`,"prevResult":` + string(prev))))
}

func TestCheck(t *testing.T) {
	endpoint := func(change func(*agentapi.Endpoint)) func(*fakeNode, map[string]any) {
		return func(w *fakeNode, _ map[string]any) {
			e := w.endpoints[pod]
			change(&e)
			w.endpoints[pod] = e
		}
	}
	iface := func(result map[string]any, i int) map[string]any {
		return result["interfaces"].([]any)[i].(map[string]any)
	}
	tests := []struct {
		name   string
		change func(w *fakeNode, result map[string]any)
		code   uint // 0: succeeds
		says   string
	}{
		{"all is well", func(*fakeNode, map[string]any) {}, 0, ""},
		{"chained plugin added an address", func(_ *fakeNode, r map[string]any) {
			r["ips"] = append(r["ips"].([]any), map[string]any{"address": "192.0.2.1/24", "interface": 1})
		}, 0, ""},
		{"no endpoint", func(w *fakeNode, _ map[string]any) { clear(w.endpoints) }, ErrDiffers, "no endpoint for interface eth0 of container c1"},
		{"agent absent", func(w *fakeNode, _ map[string]any) { w.fail["agent check"] = agentapi.ErrNoAgent }, 11, "not running"},
		{"agent sees a fault", endpoint(func(e *agentapi.Endpoint) { e.State = "program from_pod is gone" }), ErrDiffers, "program from_pod is gone"},
		{"other device", endpoint(func(e *agentapi.Endpoint) { e.HostDevice = "blother" }), ErrDiffers, "is on device blother"},
		{"other address", endpoint(func(e *agentapi.Endpoint) {
			e.Addresses = e.Addresses[:1:1]
			e.Addresses = append(e.Addresses, gatewayIPv6)
		}), ErrDiffers, "address fe80::1"},
		{"no address", endpoint(func(e *agentapi.Endpoint) { e.Addresses = nil }), ErrDiffers, "addresses []"},
		{"bad MAC", endpoint(func(e *agentapi.Endpoint) { e.HostMAC = "x" }), ErrDiffers, `host address "x"`},
		{"pod MAC changed", func(_ *fakeNode, r map[string]any) { iface(r, 1)["mac"] = "06:00:00:00:00:99" }, ErrDiffers, "06:00:00:00:00:99 in prevResult"},
		{"host device not in result", func(_ *fakeNode, r map[string]any) { iface(r, 0)["name"] = "cali1" }, ErrDiffers, "is not in prevResult"},
		{"pod device not in result", func(_ *fakeNode, r map[string]any) { iface(r, 1)["sandbox"] = "/elsewhere" }, ErrDiffers, "interface eth0 in /run/netns/none is not in prevResult"},
		{"address not in result", func(_ *fakeNode, r map[string]any) { r["ips"] = r["ips"].([]any)[:1] }, ErrDiffers, "address fd00::5"},
		{"pod differs", func(w *fakeNode, _ map[string]any) { w.fail["check pod"] = errBroken }, ErrDiffers, "broken on purpose"},
		{"result is no result", func(_ *fakeNode, r map[string]any) { r["ips"] = "x" }, 7, `field "prevResult"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, err := checked(t, test.change)
			if test.code == 0 {
				if err != nil {
					t.Fatal(err)
				}
				got := w.checked["eth0"]
				if fmt.Sprint(got.MTU, got.Addresses, got.Gateways, got.HostMAC) != "1450 [10.1.0.5/32 fd00::5/128] [169.254.1.1 fe80::1] 02:00:00:00:00:01" {
					t.Errorf("pod was checked for %+v", got)
				}
				return
			}
			if codeOf(t, err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got code %d, %v; want %d with %q", codeOf(t, err), err, test.code, test.says)
			}
		})
	}

	if err := newFakeNode().plugin().Check(args(conf(""))); codeOf(t, err) != 7 || !strings.Contains(err.Error(), `field "prevResult": missing`) {
		t.Errorf("without prevResult: %v", err)
	}
}

func TestCheckLeavesAChangedMTUAlone(t *testing.T) {
	w, err := checked(t, func(_ *fakeNode, r map[string]any) { r["interfaces"].([]any)[1].(map[string]any)["mtu"] = 1300 })
	if err != nil || w.checked["eth0"].MTU != 0 {
		t.Errorf("got %v, checked %+v", err, w.checked["eth0"])
	}
}

func TestStatus(t *testing.T) {
	w := newFakeNode()
	if err := w.plugin().Status(args(conf(""))); err != nil {
		t.Error(err)
	}
	for _, cause := range []error{agentapi.ErrNoAgent, agentapi.Errorf(agentapi.CodeNotReady, "no node"), context.DeadlineExceeded, errBroken} {
		w.fail["agent ready"] = cause
		if err := w.plugin().Status(args(conf(""))); codeOf(t, err) != 50 || !strings.Contains(err.Error(), cause.Error()) {
			t.Errorf("%v: got %v, want code 50", cause, err)
		}
	}
}

func TestGC(t *testing.T) {
	w := newFakeNode()
	if err := w.plugin().GC(args(conf(`,"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]`))); err != nil {
		t.Fatal(err)
	}
	if err := w.plugin().GC(args(conf(`,"cni.dev/valid-attachments":[]`))); err != nil {
		t.Fatal(err)
	}
	want := []agentapi.GCRequest{{Network: "pods", Valid: []agentapi.Attachment{pod}}, {Network: "pods", Valid: []agentapi.Attachment{}}}
	if diff := cmp.Diff(want, w.collected); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if err := w.plugin().GC(args(conf(""))); codeOf(t, err) != 7 || len(w.collected) != 2 {
		t.Errorf("without a list: got %v, asked %v", err, w.collected)
	}
	w.fail["agent gc"] = agentapi.ErrNoAgent
	if err := w.plugin().GC(args(conf(`,"cni.dev/valid-attachments":[]`))); codeOf(t, err) != 11 {
		t.Errorf("agent absent: got %v", err)
	}
}

func TestHostDeviceNameFits(t *testing.T) {
	if name := device.HostName(strings.Repeat("c", 64), "eth0"); len(name) > 15 {
		t.Errorf("%s has %d characters", name, len(name))
	}
}

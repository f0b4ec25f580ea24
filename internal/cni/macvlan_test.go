package cni

import (
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// confMacvlan is a configuration whose pods have macvlan devices.
func confMacvlan() []byte { return conf(`,"device":"macvlan"`) }

// A failed ADD deletes the macvlan device, which does not go with the host end.
func TestAddUndoesMacvlan(t *testing.T) {
	w := newFakeNode()
	w.fail["agent add"] = errBroken
	if err := w.plugin().Add(args(confMacvlan())); err == nil {
		t.Fatal("succeeded")
	}
	if steps := strings.Join(w.steps, ","); steps != "find device,agent prepare,create,agent add,delete macvlan,delete device" {
		t.Errorf("steps %s", steps)
	}
}

// DEL enters the network namespace of pods with macvlan devices only.
func TestDelEntersNamespaceForMacvlan(t *testing.T) {
	for _, test := range []struct {
		kind   device.Kind
		agent  error
		netns  string
		enters bool
	}{
		{device.Veth, nil, "/run/netns/none", false},
		{device.Netkit, nil, "/run/netns/none", false},
		{device.Macvlan, nil, "/run/netns/none", true},
		{device.Macvlan, agentapi.ErrNoAgent, "/run/netns/none", true},
		{device.Macvlan, nil, "", false},
	} {
		w := newFakeNode()
		if err := w.plugin().Add(args(conf(`,"device":"` + string(test.kind) + `"`))); err != nil {
			t.Fatal(err)
		}
		w.steps, w.fail["agent delete"] = nil, test.agent
		a := args(confMacvlan())
		a.Netns = test.netns
		if err := w.plugin().Del(a); err != nil {
			t.Error(err)
		}
		if enters := strings.Contains(strings.Join(w.steps, ","), "delete macvlan"); enters != test.enters {
			t.Errorf("%+v: steps %v", test, w.steps)
		}
		w.steps = nil
		if err := w.plugin().Del(a); err != nil || strings.Contains(strings.Join(w.steps, ","), "delete macvlan") {
			t.Errorf("%+v again: steps %v, %v", test, w.steps, err)
		}
	}
}

package cni

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// fakeNode is a node in memory: its devices and its agent. Steps can be made to fail.
type fakeNode struct {
	devices   map[string]bool // host devices by name
	kind      device.Kind     // of all devices
	endpoints map[agentapi.Attachment]agentapi.Endpoint
	// configured has the last Configure of each interface, checked the last Check.
	configured, checked map[string]device.PodConfig
	prepared            []agentapi.PrepareRequest
	added               []agentapi.AddRequest
	collected           []agentapi.GCRequest
	deleted             []agentapi.DeleteRequest
	steps               []string
	// networks are those of every endpoint's IPPool.
	networks []netip.Prefix
	// fail has the error of each failing step.
	fail   map[string]error
	stdout bytes.Buffer
	stderr bytes.Buffer
	socket string
}

// hostIndex is the index of every host device.
const hostIndex = 7

var errBroken = errors.New("broken on purpose")

func newFakeNode() *fakeNode {
	return &fakeNode{
		devices:    map[string]bool{},
		endpoints:  map[agentapi.Attachment]agentapi.Endpoint{},
		configured: map[string]device.PodConfig{},
		checked:    map[string]device.PodConfig{},
		fail:       map[string]error{},
	}
}

func (w *fakeNode) plugin() *Plugin {
	return &Plugin{
		Agent:   func(socket string) Agent { w.socket = socket; return fakeAgent{w} },
		Devices: fakeDevices{fakeNode: w},
		Stdout:  fakeStdout{w},
		Stderr:  &w.stderr,
		Timeout: time.Minute,
	}
}

func (w *fakeNode) step(name string) error {
	w.steps = append(w.steps, name)
	return w.fail[name]
}

type fakeStdout struct{ *fakeNode }

func (w fakeStdout) Write(p []byte) (int, error) {
	if err := w.step("print"); err != nil {
		return 0, err
	}
	return w.stdout.Write(p)
}

// fakeDevices implements what the plugin calls of device.PodDevices.
type fakeDevices struct {
	device.PodDevices
	*fakeNode
}

var (
	hostMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	podMAC  = net.HardwareAddr{6, 0, 0, 0, 0, 2}
)

func (w fakeDevices) Create(spec device.PodSpec) (device.PodDevice, error) {
	if err := w.step("create"); err != nil {
		return device.PodDevice{}, err
	}
	name := device.HostName(spec.ContainerID, spec.IfName)
	w.devices[name], w.kind = true, spec.Kind
	return device.PodDevice{HostName: name, HostIndex: hostIndex, HostMAC: hostMAC, PodName: spec.IfName, PodIndex: 2, PodMAC: podMAC}, nil
}

func (w fakeDevices) Configure(_, ifName string, cfg device.PodConfig) error {
	w.configured[ifName] = cfg
	return w.step("configure")
}

func (w fakeDevices) IsSecond(_, ifName string) (bool, error) {
	return ifName != "eth0", w.step("find default routes")
}

func (w fakeDevices) Check(_, ifName string, cfg device.PodConfig) error {
	w.checked[ifName] = cfg
	return w.step("check pod")
}

func (w fakeDevices) HostEnd(name string) (end device.HostEnd, ok bool, err error) {
	if ok = w.devices[name]; ok {
		end = device.HostEnd{Name: name, Index: hostIndex, Kind: w.kind}
	}
	return end, ok, w.step("find device")
}

func (w fakeDevices) Delete(name string) error {
	if err := w.step("delete device"); err != nil {
		return err
	}
	delete(w.devices, name)
	return nil
}

func (w fakeDevices) DeleteMacvlan(string, string) error { return w.step("delete macvlan") }

type fakeAgent struct{ *fakeNode }

// addresses and mtu are what the agent gives every pod.
var addresses = []netip.Addr{netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("fd00::5")}

const mtu = 1450

func (w fakeAgent) Prepare(_ context.Context, req agentapi.PrepareRequest) (*agentapi.Preparation, error) {
	w.prepared = append(w.prepared, req)
	if err := w.step("agent prepare"); err != nil {
		return nil, err
	}
	return &agentapi.Preparation{Device: cmp.Or(req.Device, "veth")}, nil
}

func (w fakeAgent) Add(_ context.Context, req agentapi.AddRequest) (*agentapi.Endpoint, error) {
	w.added = append(w.added, req)
	if err := w.step("agent add"); err != nil {
		return nil, err
	}
	e := req.Endpoint
	e.Addresses, e.MTU, e.State, e.Networks = addresses, mtu, agentapi.StateReady, w.networks
	w.endpoints[req.Attachment] = e
	if w.fail["bad response"] != nil {
		e.Addresses = nil
	}
	return &e, nil
}

func (w fakeAgent) Delete(_ context.Context, req agentapi.DeleteRequest) error {
	w.deleted = append(w.deleted, req)
	if err := w.step("agent delete"); err != nil {
		return err
	}
	delete(w.endpoints, req.Attachment)
	return nil
}

func (w fakeAgent) Check(_ context.Context, a agentapi.Attachment) (*agentapi.Endpoint, error) {
	if err := w.step("agent check"); err != nil {
		return nil, err
	}
	e, ok := w.endpoints[a]
	if !ok {
		return nil, agentapi.Errorf(agentapi.CodeNotFound, "no endpoint")
	}
	return &e, nil
}

func (w fakeAgent) GC(_ context.Context, req agentapi.GCRequest) error {
	w.collected = append(w.collected, req)
	return w.step("agent gc")
}

func (w fakeAgent) Ready(context.Context) error { return w.step("agent ready") }

var pod = agentapi.Attachment{ContainerID: "c1", IfName: "eth0"}

// conf is a minimal configuration, with more fields.
func conf(more string) []byte {
	return fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"pods","type":"beeline-cni"%s}`, more)
}

func args(stdin []byte) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: pod.ContainerID, IfName: pod.IfName, Netns: "/run/netns/none", StdinData: stdin,
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_UID=u1;K8S_POD_INFRA_CONTAINER_ID=c1;FOO=bar",
	}
}

// codeOf is the CNI code that skel would print for err.
func codeOf(t *testing.T, err error) uint {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) {
		if err == nil {
			t.Fatal("succeeded, want an error")
		}
		return types.ErrInternal
	}
	return e.Code
}

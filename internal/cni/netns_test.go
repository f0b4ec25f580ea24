package cni_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/agent/api/server"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/ipam"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// chainDir has the reference plugins that Debian ships.
const chainDir = "/usr/lib/cni"

// binDir has the plugin as TestMain built it.
var binDir string

func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "beeline-cni")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(dir)
	binDir = dir
	command := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir, "github.com/beeline-cni/beeline/cmd/beeline-cni")
	if out, err := command.CombinedOutput(); err != nil {
		log.Printf("build plugin: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// agent behaves as the real one does towards the plugin: it hands out addresses, knows endpoints as long
// as their host device exists, and deletes the device with the endpoint. It has no datapath.
type agent struct {
	node ns.NetNS
	pool *ipam.Pool

	mu        sync.Mutex
	endpoints map[api.Attachment]api.Endpoint
	// sick is what Ready and Add answer, if set.
	sick error
	// mtu is what pods get, adds counts the calls; during, if set, runs in the middle of Add.
	mtu    int
	adds   int
	during func()
}

func owner(a api.Attachment) string { return a.ContainerID + "/" + a.IfName }

func (a *agent) Add(_ context.Context, req api.AddRequest) (*api.AddResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adds++
	if a.sick != nil {
		return nil, a.sick
	}
	addrs, err := a.pool.Allocate(ipam.Owner{ID: owner(req.Attachment), Namespace: req.Pod.Namespace})
	var exhausted *ipam.ExhaustedError
	switch {
	case errors.As(err, &exhausted):
		return nil, api.Errorf(api.CodeExhausted, "%v", err)
	case errors.Is(err, ipam.ErrHeld):
		return nil, api.Errorf(api.CodeConflict, "%v", err)
	case err != nil:
		return nil, err
	}
	e := api.Endpoint{
		Attachment: req.Attachment, Network: req.Network, Pod: req.Pod, Netns: req.Netns, HostDevice: req.HostDevice,
		HostIfIndex: req.HostIfIndex, HostMAC: req.HostMAC, PodMAC: req.PodMAC, Addresses: addrs, MTU: a.mtu, State: "ready",
	}
	a.endpoints[req.Attachment] = e
	if a.during != nil {
		a.during()
	}
	resp := &api.AddResponse{MTU: e.MTU}
	for _, addr := range addrs {
		gateway := netip.MustParseAddr("169.254.1.1")
		if addr.Is6() {
			gateway = netip.MustParseAddr("fe80::1")
		}
		resp.Addresses = append(resp.Addresses, netip.PrefixFrom(addr, addr.BitLen()))
		resp.Gateways = append(resp.Gateways, gateway)
	}
	return resp, nil
}

func (a *agent) Delete(_ context.Context, at api.Attachment) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.remove(at)
}

func (a *agent) remove(at api.Attachment) error {
	err := a.node.Do(func(ns.NetNS) error { return device.DeleteHost(device.HostName(at.ContainerID, at.IfName)) })
	if err == nil {
		a.pool.Release(owner(at))
		delete(a.endpoints, at)
	}
	return err
}

func (a *agent) Check(_ context.Context, at api.Attachment) (*api.Endpoint, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.endpoints[at]
	if !ok {
		return nil, api.Errorf(api.CodeNotFound, "no endpoint")
	}
	return &e, nil
}

func (a *agent) GC(_ context.Context, req api.GCRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for at, e := range a.endpoints {
		if e.Network == req.Network && !slices.Contains(req.Valid, at) {
			errs = append(errs, a.remove(at))
		}
	}
	return errors.Join(errs...)
}

func (a *agent) Ready(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sick
}

func (a *agent) Status(context.Context) (*api.Status, error)       { return &api.Status{}, nil }
func (a *agent) Endpoints(context.Context) ([]api.Endpoint, error) { return nil, nil }
func (a *agent) Services(context.Context, api.ServiceFilter) ([]api.ServicePort, error) {
	return nil, nil
}
func (a *agent) Policies(context.Context, api.PolicyFilter) ([]api.NetworkPolicy, error) {
	return nil, nil
}
func (a *agent) ExplainPolicy(context.Context, api.PolicyQuestion) (*api.PolicyAnswer, error) {
	return &api.PolicyAnswer{}, nil
}
func (a *agent) Drops(context.Context) ([]api.Drop, error) { return nil, nil }
func (a *agent) Flows(context.Context, api.FlowFilter) (*api.FlowList, error) {
	return &api.FlowList{}, nil
}
func (a *agent) FollowFlows(context.Context, api.FlowFilter, func(api.FlowLine) error) error {
	return nil
}

// known gives a copy of the endpoints.
func (a *agent) known() map[api.Attachment]api.Endpoint {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.endpoints)
}

// asked gives how often Add was called.
func (a *agent) asked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.adds
}

func (a *agent) fallSick(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sick = err
}

// bench is a node in a network namespace of its own, with an agent that listens and libcni to call plugins.
type bench struct {
	t      testing.TB
	node   ns.NetNS
	agent  *agent
	socket string
	server *http.Server
	cni    *libcni.CNIConfig
}

func newBench(t testing.TB, prefixes ...netip.Prefix) *bench {
	t.Helper()
	testenv.Root(t)
	node := newNetns(t)
	if len(prefixes) == 0 {
		prefixes = []netip.Prefix{netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("fd77::/64")}
	}
	pool, err := ipam.NewPool(prefixes)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// Given here because libcni would make it at the first call, unprotected.
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: t.Output()}}
	b := &bench{
		t: t, node: node, socket: filepath.Join(dir, "agent.sock"),
		agent: &agent{node: node, pool: pool, mtu: 1400, endpoints: map[api.Attachment]api.Endpoint{}},
		cni:   libcni.NewCNIConfigWithCacheDir([]string{binDir, chainDir}, filepath.Join(dir, "cache"), exec),
	}
	l, err := server.Listen(b.socket)
	if err != nil {
		t.Fatal(err)
	}
	b.server = &http.Server{Handler: server.Handler(b.agent)}
	go func() { _ = b.server.Serve(l) }() // until it is closed
	t.Cleanup(func() { b.server.Close() })
	return b
}

func newNetns(t testing.TB) ns.NetNS {
	t.Helper()
	n, err := testutils.NewNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Close()
		_ = testutils.UnmountNS(n) // some tests have done so already
	})
	return n
}

// list is a network of Beeline and the plugins of chain, each a JSON object.
func (b *bench) list(cniVersion string, chain ...string) *libcni.NetworkConfigList {
	b.t.Helper()
	own := fmt.Sprintf(`{"type":"beeline-cni","agentSocket":%q}`, b.socket)
	text := fmt.Sprintf(`{"cniVersion":%q,"name":"pods","plugins":[%s]}`, cniVersion, strings.Join(append([]string{own}, chain...), ","))
	list, err := libcni.NetworkConfFromBytes([]byte(text))
	if err != nil {
		b.t.Fatal(err)
	}
	return list
}

// pod is a container with a namespace, attached by eth0.
func (b *bench) pod(name string) (*libcni.RuntimeConf, ns.NetNS) {
	b.t.Helper()
	netns := newNetns(b.t)
	return &libcni.RuntimeConf{
		ContainerID: name, NetNS: netns.Path(), IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "u-" + name}},
	}, netns
}

// do calls f, and with it the plugins, in the node's namespace.
func (b *bench) do(f func() error) error {
	return b.node.Do(func(ns.NetNS) error { return f() })
}

func (b *bench) add(list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) (result types.Result, err error) {
	err = b.do(func() (err error) {
		result, err = b.cni.AddNetworkList(context.Background(), list, rt)
		return err
	})
	return result, err
}

func (b *bench) del(list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	return b.do(func() error { return b.cni.DelNetworkList(context.Background(), list, rt) })
}

func (b *bench) check(list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	return b.do(func() error { return b.cni.CheckNetworkList(context.Background(), list, rt) })
}

// expectEmpty fails unless no device, endpoint or address is left.
func (b *bench) expectEmpty() {
	b.t.Helper()
	b.agent.mu.Lock()
	defer b.agent.mu.Unlock()
	err := b.node.Do(func(ns.NetNS) error {
		links, err := netlink.LinkList()
		for _, link := range links {
			if link.Attrs().Name != "lo" {
				b.t.Errorf("device %s is left", link.Attrs().Name)
			}
		}
		return err
	})
	if err != nil {
		b.t.Error(err)
	}
	if len(b.agent.endpoints) != 0 {
		b.t.Errorf("endpoints are left: %v", b.agent.endpoints)
	}
	for _, usage := range b.agent.pool.Usage() {
		if usage.Used != 0 {
			b.t.Errorf("addresses are left in use: %+v", usage)
		}
	}
}

func wantCode(t *testing.T, err error, code uint, says string) {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Error(), says) {
		t.Errorf("got %v, want CNI error %d with %q", err, code, says)
	}
}

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
			if e := b.agent.known()[api.Attachment{ContainerID: "web", IfName: "eth0"}]; e.Pod != (api.PodRef{Namespace: "default", Name: "web", UID: "u-web"}) || e.Network != "pods" {
				t.Errorf("agent was told %+v", e)
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

func TestUnknownVersionsAreRefused(t *testing.T) {
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

// execute runs the plugin as a runtime without libcni does, and gives the error it prints.
func (b *bench) execute(command string, rt *libcni.RuntimeConf, stdin string) types.Error {
	b.t.Helper()
	return b.executeAs("beeline-cni", command, rt, stdin)
}

func (b *bench) executeAs(plugin, command string, rt *libcni.RuntimeConf, stdin string) types.Error {
	b.t.Helper()
	var stdout bytes.Buffer
	err := b.do(func() error {
		c := b.command(plugin, command, rt, stdin)
		c.Stdout = &stdout
		return c.Run()
	})
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	var e types.Error
	if err != nil {
		if jsonErr := json.Unmarshal(stdout.Bytes(), &e); jsonErr != nil {
			b.t.Fatalf("%v printed %q", err, &stdout)
		}
	}
	return e
}

func (b *bench) command(plugin, command string, rt *libcni.RuntimeConf, stdin string) *exec.Cmd {
	path := filepath.Join(chainDir, plugin)
	if plugin == "beeline-cni" {
		path = filepath.Join(binDir, plugin)
	}
	c := exec.Command(path)
	c.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + rt.ContainerID, "CNI_NETNS=" + rt.NetNS, "CNI_IFNAME=" + rt.IfName,
		"CNI_PATH=" + chainDir, "PATH=" + os.Getenv("PATH"),
	}
	c.Stdin = strings.NewReader(stdin)
	return c
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

func TestInterfaceNameTakenInThePod(t *testing.T) {
	b := newBench(t)
	rt, _ := b.pod("web")
	rt.IfName = "lo"
	_, err := b.add(b.list("1.1.0"), rt)
	wantCode(t, err, 100, "file exists")
	b.expectEmpty()
}

// The failing steps of ADD with real devices; TestAddUndoesEveryStep has all steps with devices in memory.

func TestPodCannotBeConfigured(t *testing.T) {
	b := newBench(t)
	b.agent.mtu = 1 << 20 // more than a veth can have
	rt, netns := b.pod("web")
	_, err := b.add(b.list("1.1.0"), rt)
	wantCode(t, err, types.ErrInternal, "set MTU of eth0")
	b.expectEmpty()
	expectNoInterface(t, netns)
}

func TestResultCannotBePrinted(t *testing.T) {
	b := newBench(t)
	rt, netns := b.pod("web")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	err = b.do(func() error {
		plugin := b.command("beeline-cni", "ADD", rt, string(b.single(b.list("1.1.0"))))
		plugin.Stdout = full
		return plugin.Run()
	})
	if err == nil {
		t.Error("ADD succeeded without printing its result")
	}
	if adds := b.agent.asked(); adds != 1 {
		t.Errorf("the agent was asked %d times, the result was not the step that failed", adds)
	}
	b.expectEmpty()
	expectNoInterface(t, netns)
}

func TestAgentKilledDuringAdd(t *testing.T) {
	b := newBench(t)
	b.agent.during = func() { b.server.Close() }
	rt, netns := b.pod("web")
	_, err := b.add(b.list("1.1.0"), rt)
	wantCode(t, err, types.ErrTryAgainLater, "connection lost")
	expectNoInterface(t, netns)
	// The agent is back and drops the endpoint, which has no device.
	if err := b.agent.Delete(context.Background(), api.Attachment{ContainerID: "web", IfName: "eth0"}); err != nil {
		t.Error(err)
	}
	b.expectEmpty()
}

func expectNoInterface(t *testing.T, netns ns.NetNS) {
	t.Helper()
	err := netns.Do(func(ns.NetNS) error {
		links, err := netlink.LinkList()
		if len(links) != 1 {
			t.Errorf("interfaces are left in the pod: %v", links)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAgentRefusals(t *testing.T) {
	b := newBench(t, netip.MustParsePrefix("10.77.0.0/30"))
	list := b.list("1.1.0")
	var pods []*libcni.RuntimeConf
	for i := range 2 {
		rt, _ := b.pod(fmt.Sprint("web", i))
		if _, err := b.add(list, rt); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, rt)
	}
	rt, _ := b.pod("late")
	_, err := b.add(list, rt)
	wantCode(t, err, 101, "all 2 are in use, 2 by namespace default")
	b.agent.fallSick(api.Errorf(api.CodeNotReady, "node a is not in the manifests"))
	_, err = b.add(list, rt)
	wantCode(t, err, types.ErrTryAgainLater, "node a is not in the manifests")
	err = b.do(func() error { return b.cni.GetStatusNetworkList(context.Background(), list) })
	wantCode(t, err, types.ErrPluginNotAvailable, "node a is not in the manifests")
	b.agent.fallSick(nil)
	for _, rt := range pods {
		if err := b.del(list, rt); err != nil {
			t.Error(err)
		}
	}
	b.expectEmpty()
}

func TestNoAgent(t *testing.T) {
	b := newBench(t)
	list := b.list("1.1.0")
	rt, _ := b.pod("web")
	if _, err := b.add(list, rt); err != nil {
		t.Fatal(err)
	}
	if err := b.server.Close(); err != nil {
		t.Fatal(err)
	}

	late, _ := b.pod("late")
	_, err := b.add(list, late)
	wantCode(t, err, types.ErrTryAgainLater, "the beeline agent is not running")
	wantCode(t, b.check(list, rt), types.ErrTryAgainLater, "not running")
	err = b.do(func() error { return b.cni.GetStatusNetworkList(context.Background(), list) })
	wantCode(t, err, types.ErrPluginNotAvailable, "no agent answers")
	for range 2 {
		if err := b.del(list, rt); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	// The agent is back and drops endpoints without a device.
	if err := b.agent.Delete(context.Background(), api.Attachment{ContainerID: "web", IfName: "eth0"}); err != nil {
		t.Error(err)
	}
	b.expectEmpty()
}

func TestNamespaceGoneBeforeDel(t *testing.T) {
	b := newBench(t)
	list := b.list("1.1.0")
	for _, clear := range []bool{false, true} {
		rt, netns := b.pod(fmt.Sprint("web", clear))
		if _, err := b.add(list, rt); err != nil {
			t.Fatal(err)
		}
		netns.Close()
		if err := testutils.UnmountNS(netns); err != nil {
			t.Fatal(err)
		}
		if clear {
			rt.NetNS = "" // what a runtime passes that knows
		}
		if err := b.del(list, rt); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	b.expectEmpty()
}

func TestGarbageCollection(t *testing.T) {
	b := newBench(t)
	list := b.list("1.1.0")
	var valid []types.GCAttachment
	for _, name := range []string{"keep", "drop"} {
		rt, _ := b.pod(name)
		// Not through libcni, whose cache would DEL what it knows before it calls GC.
		if e := b.execute("ADD", rt, string(b.single(list))); e.Code != 0 {
			t.Fatal(e)
		}
		if name == "keep" {
			valid = append(valid, types.GCAttachment{ContainerID: rt.ContainerID, IfName: rt.IfName})
		}
	}
	gc := func(valid []types.GCAttachment) {
		t.Helper()
		if err := b.do(func() error {
			return b.cni.GCNetworkList(context.Background(), list, &libcni.GCArgs{ValidAttachments: valid})
		}); err != nil {
			t.Fatal(err)
		}
	}
	gc(valid)
	if _, kept := b.agent.known()[api.Attachment{ContainerID: "keep", IfName: "eth0"}]; !kept || len(b.agent.known()) != 1 {
		t.Errorf("endpoints after GC: %v", b.agent.known())
	}
	gc(nil)
	b.expectEmpty()
}

// single is the configuration that a runtime passes to the plugin.
func (b *bench) single(list *libcni.NetworkConfigList) []byte {
	b.t.Helper()
	c, err := libcni.InjectConf(list.Plugins[0], map[string]any{"name": list.Name, "cniVersion": list.CNIVersion})
	if err != nil {
		b.t.Fatal(err)
	}
	return c.Bytes
}

func TestConcurrentPods(t *testing.T) {
	b := newBench(t)
	list := b.list("1.1.0")
	const pods = 20
	var wg sync.WaitGroup
	seen := make(chan string, 2*pods)
	for i := range pods {
		rt, _ := b.pod(fmt.Sprint("web", i))
		wg.Go(func() {
			for range 2 {
				raw, err := b.add(list, rt)
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 { // these come and go
					if err := b.del(list, rt); err != nil {
						t.Error(err)
					}
					continue
				}
				result, err := current.NewResultFromResult(raw)
				if err != nil {
					t.Error(err)
					return
				}
				seen <- result.IPs[0].Address.String()
				return
			}
		})
	}
	wg.Wait()
	close(seen)
	addresses := map[string]bool{}
	for address := range seen {
		if addresses[address] {
			t.Errorf("%s was handed out twice", address)
		}
		addresses[address] = true
	}
	if len(addresses) != pods/2 || len(b.agent.known()) != pods/2 {
		t.Errorf("%d addresses, %d endpoints, want %d", len(addresses), len(b.agent.known()), pods/2)
	}
	for i := 1; i < pods; i += 2 {
		if err := b.del(list, &libcni.RuntimeConf{ContainerID: fmt.Sprint("web", i), IfName: "eth0"}); err != nil {
			t.Error(err)
		}
	}
	b.expectEmpty()
}

// TestChain attaches pods with each of the standard plugins behind Beeline, and with all.
func TestChain(t *testing.T) {
	portmap := `{"type":"portmap","capabilities":{"portMappings":true},"snat":true}`
	bandwidth := `{"type":"bandwidth","ingressRate":1000000,"ingressBurst":1000000,"egressRate":1000000,"egressBurst":1000000}`
	tuning := `{"type":"tuning","sysctl":{"net.ipv4.conf.eth0.arp_filter":"1"}}`
	chains := map[string][]string{
		"portmap": {portmap}, "bandwidth": {bandwidth}, "tuning": {tuning}, "all": {portmap, bandwidth, tuning},
	}
	for name, chain := range chains {
		t.Run(name, func(t *testing.T) {
			for _, plugin := range []string{"portmap", "bandwidth", "tuning"} {
				if _, err := os.Stat(filepath.Join(chainDir, plugin)); err != nil {
					testenv.Missing(t, "needs the reference plugins: "+err.Error())
				}
			}
			b := newBench(t)
			list := b.list("1.0.0", chain...) // the newest version that Debian's plugins speak
			rt, netns := b.pod("web")
			rt.CapabilityArgs = map[string]any{"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
			if _, err := b.add(list, rt); err != nil {
				t.Fatal(err)
			}
			// Without portmap, whose CHECK (1.1.1) looks for every rule in iptables and ip6tables alike.
			checkable := slices.DeleteFunc(slices.Clone(chain), func(plugin string) bool { return plugin == portmap })
			if err := b.check(b.list("1.0.0", checkable...), rt); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			if slices.Contains(chain, portmap) {
				b.expectRule("iptables", "--to-destination 10.77.0.1:80")
				b.expectRule("ip6tables", "--to-destination [fd77::1]:80")
			}
			if slices.Contains(chain, tuning) {
				err := netns.Do(func(ns.NetNS) error {
					value, err := os.ReadFile("/proc/sys/net/ipv4/conf/eth0/arp_filter")
					if strings.TrimSpace(string(value)) != "1" {
						t.Errorf("arp_filter is %q", value)
					}
					return err
				})
				if err != nil {
					t.Error(err)
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

// expectRule fails unless the tool lists a NAT rule with this text in the node's namespace.
func (b *bench) expectRule(tool, text string) {
	b.t.Helper()
	err := b.do(func() error {
		out, err := exec.Command(tool, "-t", "nat", "-S").CombinedOutput()
		if !strings.Contains(string(out), text) {
			b.t.Errorf("%s has no rule with %q:\n%s", tool, text, out)
		}
		return err
	})
	if err != nil {
		b.t.Error(err)
	}
}

// TestFailingChainIsUndone has the second plugin fail; the runtime then calls DEL for the whole list.
func TestFailingChainIsUndone(t *testing.T) {
	b := newBench(t)
	list := b.list("1.0.0", `{"type":"tuning","sysctl":{"net.ipv4.conf.all.there_is_no_such_key":"1"}}`)
	rt, _ := b.pod("web")
	if _, err := b.add(list, rt); err == nil {
		t.Fatal("the chain succeeded")
	}
	if err := b.del(list, rt); err != nil {
		t.Errorf("DEL: %v", err)
	}
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

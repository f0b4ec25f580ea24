package cni_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/agentapi/server"
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
	node := testenv.NewNetns(t)
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
		agent: &agent{node: node, pool: pool, mtu: 1400, endpoints: map[agentapi.Attachment]agentapi.Endpoint{}},
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
	netns := testenv.NewNetns(b.t)
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

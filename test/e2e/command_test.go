package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// command runs a command of the program beeline on the node and returns its output.
func (c *cluster) command(n *node, args ...string) string {
	c.t.Helper()
	out, err := n.Output(c.t.Context(), current(c.t).Command(), append(args, "--socket", n.socket())...)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(out)
}

// commandJSON runs a command with JSON output and decodes it.
func (c *cluster) commandJSON(n *node, into any, args ...string) {
	c.t.Helper()
	decoder := json.NewDecoder(strings.NewReader(c.command(n, append(args, "-o", "json")...)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		c.t.Fatalf("beeline %s: %v", strings.Join(args, " "), err)
	}
}

// TestCommandsAgree compares the output of commands and the metrics with the lab.
func TestCommandsAgree(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	p := c.addPods()
	if err := c.reach(p.a, p.far); err != nil {
		t.Fatal(err)
	}
	var status agentapi.Status
	c.commandJSON(n, &status, "status")
	if !status.Ready || len(status.Problems) > 0 || status.Node != n.Name || status.PID != n.agent.Cmd.Process.Pid || status.Endpoints != 2 {
		t.Errorf("status: %+v", status)
	}
	if len(status.Uplinks) != 1 || status.Uplinks[0].Name != testbed.Uplink || !slices.Equal(status.Uplinks[0].Addresses, n.Addresses) {
		t.Errorf("uplinks: %+v", status.Uplinks)
	}
	if len(status.Nodes) != 1 || status.Nodes[0].Name != "n2" || !slices.Equal(status.Nodes[0].PodCIDRs, c.nodes[1].PodCIDRs) || status.Nodes[0].MAC == "" {
		t.Errorf("other nodes: %+v", status.Nodes)
	}
	if len(status.Pools) != 2 || status.Pools[0].Used != 2 || status.Pools[1].Used != 2 {
		t.Errorf("pools: %+v", status.Pools)
	}
	attached := map[string]int{}
	for _, program := range status.Programs {
		attached[program.Name] = program.Attached
	}
	wantAttached := map[string]int{
		"from_pod": 2, "from_wire": 1, "wire_xdp": 0, // no XDP on a veth
		"connect4": 1, "connect6": 1, "sendmsg4": 1, "sendmsg6": 1, "recvmsg4": 1, "recvmsg6": 1, "getpeername4": 1, "getpeername6": 1,
		"sock_release":    1,
		"flush_conntrack": 0, // the agent runs it
	}
	for name, want := range wantAttached {
		if got, loaded := attached[name]; !loaded || got != want {
			t.Errorf("program %s: loaded %t, attached %d times, want %d", name, loaded, got, want)
		}
	}
	if len(status.Features) == 0 || entries(&status, "endpoints") != 4 {
		t.Errorf("%d features, maps %+v", len(status.Features), status.Maps)
	}
	text := c.command(n, "status")
	if !containsAll(text, []string{"Node n1 is ready", status.Version, "from_pod", "10.77.1.0/24", "fd77:1:2::/64", status.Uplinks[0].MAC}) {
		t.Errorf("beeline status prints\n%s", text)
	}

	var endpoints []agentapi.Endpoint
	c.commandJSON(n, &endpoints, "endpoints")
	if len(endpoints) != 2 {
		t.Fatalf("endpoints: %+v", endpoints)
	}
	text = c.command(n, "endpoints")
	for i, pod := range []*testbed.Pod{p.a, p.b} {
		e := endpoints[i]
		if e.Pod.Name != pod.Name || !slices.Equal(e.Addresses, pod.Addresses) || e.Netns != pod.Path || e.State != agentapi.StateReady {
			t.Errorf("endpoint of %+v: %+v", pod, e)
		}
		if !containsAll(text, []string{"default/" + pod.Name, pod.Addresses[0].String(), pod.Addresses[1].String(), e.HostDevice}) {
			t.Errorf("beeline endpoints prints\n%s", text)
		}
	}

	metrics := c.scrape(n, "/metrics", http.StatusOK)
	for _, line := range []string{
		"beeline_ready 1", "beeline_problems 0", "beeline_endpoints 2", "beeline_mtu_bytes 1500",
		`beeline_addresses_used{range="10.77.1.0/24"} 2`, `beeline_map_entries{map="endpoints"} 4`,
		fmt.Sprintf(`beeline_info{node="n1",routing="ebpf",version=%q} 1`, status.Version),
	} {
		if !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("no line %q in the metrics", line)
		}
	}
	c.scrape(n, "/healthz", http.StatusOK)
	c.scrape(n, "/readyz", http.StatusOK)
}

// TestReadiness removes a Node object: the agent is alive and not ready in all its reports.
func TestReadiness(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	if err := os.Remove(c.manifestFile(n)); err != nil {
		t.Fatal(err)
	}
	c.waitProblem(n, "not among the 1 Node objects")
	c.scrape(n, "/healthz", http.StatusOK)
	if output := c.scrape(n, "/readyz", http.StatusServiceUnavailable); !strings.Contains(output, "not ready") {
		t.Errorf("/readyz returns %q", output)
	}
	if metrics := c.scrape(n, "/metrics", http.StatusOK); !strings.Contains(metrics, "\nbeeline_ready 0\n") {
		t.Error("the metrics say that the node is ready")
	}
	if text := c.command(n, "status"); !strings.Contains(text, "NOT READY") {
		t.Errorf("beeline status prints\n%s", text)
	}
}

var metricName = regexp.MustCompile(`\bbeeline_[a-z_]+[a-z]`)

// TestMetricsAreDocumented compares the names in docs/reference/metrics.md with the served ones.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	w := newServiceLab(t, "--same-node=sockets")
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := metricName.FindAllString(string(page), -1)
	slices.Sort(documented)
	documented = slices.DeleteFunc(slices.Compact(documented), isOfEncryption)
	// Some need a Service, a pod, connections, or conntrack entries.
	w.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, "", w.far))
	w.writeManifest("policy.yaml", []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: all}\nspec: {podSelector: {}, policyTypes: [Egress], egress: [{}]}"))
	w.waitStatus(w.here, func(s *agentapi.Status) error {
		if s.Policy.Pods == 0 {
			return errors.New("the policy is not enforced")
		}
		return nil
	})
	w.openSockets()
	eventually(t, func() error {
		served := w.servedMetrics()
		for _, name := range documented {
			if !slices.Contains(served, name) {
				return fmt.Errorf("%s is documented and not served", name)
			}
		}
		for _, name := range served {
			if !slices.Contains(documented, name) {
				return fmt.Errorf("%s is served and not documented in docs/reference/metrics.md", name)
			}
		}
		return nil
	})
}

// isOfEncryption says of a metric that only nodes with encryption serve it: TestEncryptionRotation and TestEncryptionGenerations look for it.
func isOfEncryption(metric string) bool {
	return strings.HasPrefix(metric, "beeline_wireguard_") || strings.HasPrefix(metric, "beeline_ipsec_")
}

// servedMetrics returns the names of Beeline's own metrics that the agent of here serves.
func (w *external) servedMetrics() (names []string) {
	w.t.Helper()
	for line := range strings.Lines(w.scrape(w.here, "/metrics", http.StatusOK)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "TYPE" && strings.HasPrefix(fields[2], "beeline_") {
			names = append(names, fields[2])
		}
	}
	return names
}

// scrape gets a page from the agent's metrics address, on its node.
func (c *cluster) scrape(n *node, path string, want int) string {
	c.t.Helper()
	var conn net.Conn
	err := n.Do(func() (err error) {
		conn, err = net.Dial("tcp", "127.0.0.1:9965")
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true,
	}}
	response, err := client.Get("http://127.0.0.1:9965" + path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if response.StatusCode != want {
		c.t.Errorf("%s returns %s, want %d: %s", path, response.Status, want, body)
	}
	return string(body)
}

// TestSecondAgentIsRejected starts a second agent with the same state directory, or with the same socket only.
func TestSecondAgentIsRejected(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	for name, change := range map[string]struct{ flags, words []string }{
		"state directory": {
			[]string{"--socket", n.socket() + "2", "--metrics-address", ""},
			[]string{"another agent", n.stateDir()},
		},
		"socket": {
			[]string{"--state-dir", n.stateDir() + "2", "--bpffs", n.BPFFS + "/2", "--metrics-address", ""},
			[]string{n.socket(), "another agent listens"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := c.agentCommand(n, current(t), change.flags...)
			var output strings.Builder
			cmd.Stderr = &output
			if err := n.Run(cmd); err == nil {
				t.Error("the second agent ends with success")
			}
			if !containsAll(output.String(), change.words) || strings.Contains(output.String(), "agent starts") {
				t.Errorf("the second agent prints %q, want %q and no start", output.String(), change.words)
			}
		})
	}
	c.waitReady(n)
	if got := c.status(n).PID; got != n.agent.Cmd.Process.Pid {
		t.Errorf("the agent is now %d", got)
	}
}

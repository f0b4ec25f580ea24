package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// echoPort is the port of the echo servers of TestPreviousVersion.
const echoPort = 8090

// TestPreviousVersion starts with the programs and the CNI plugin of a previous version, upgrades both nodes to these
// sources and goes back, under traffic of all kinds: N → N+1 → N. Established connections continue, unless a map that
// only the datapath fills begins empty: `nat` (translated connections) or `conntrack` (replies to an isolated pod), see
// docs/upgrade.md. No packet that a policy denies passes at any moment.
func TestPreviousVersion(t *testing.T) {
	flags := []string{"--services=ebpf"}
	current(t)
	for name, build := range predecessors(t) {
		t.Run(name, func(t *testing.T) { upgradeAndBack(t, build(t), flags) })
	}
}

// upgradeAndBack is one pass of TestPreviousVersion.
func upgradeAndBack(t *testing.T, old programs, flags []string) {
	t.Helper()
	begin := time.Now()
	t.Cleanup(func() { t.Logf("%s without the build", time.Since(begin).Round(100*time.Millisecond)) })
	before := knownFlags(t, old, flags)
	v := newVersions(t, old, before)
	v.exchangePods()
	_, err := os.Readlink(filepath.Join(v.here.BPFFS, "maps", committedList))
	v.replaceBy(current(t), flags, true, true, v.nodes[0], v.nodes[1])
	v.replaceBy(old, before, false, err == nil, v.nodes[1], v.nodes[0])
	v.finish()
	v.remove(old)
}

// committedList is a symbolic link beside the pins of maps, which lists them.
const committedList = "committed"

// knownFlags returns the flags that an agent has.
func knownFlags(t *testing.T, p programs, flags []string) (known []string) {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), p.Agent(), "run", "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flags {
		if name, _, _ := strings.Cut(f, "="); bytes.Contains(help, []byte(name+" ")) {
			known = append(known, f)
		} else {
			t.Logf("the previous version has no %s", name)
		}
	}
	return known
}

// versions is a policy lab whose agents are replaced by those of another version, with its traffic.
type versions struct {
	*policyLab
	serviceLab *serviceLab
	// added are further pods: one on each node for each version so far.
	added   [][2]*testbed.Pod
	version int
	// direct is traffic between pods that policies allow in both directions.
	direct *traffic
	// remembered depends on maps that only the datapath fills: it is translated, or policies allow replies only.
	remembered []*requests
	// denied are connections that no policy allows.
	denied []*probe
	// received has datagrams in the isolated pod, allowed from near only.
	received *listener
	// processes run in a pod's cgroup, where programs translate sockets.
	processes []*process
}

const (
	// allowClients isolates the pod's ingress, except from near.
	allowClients = "{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}"
	// allowWeb isolates near's egress, except to the pod.
	allowWeb = "{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}"
)

// newVersions starts this version on both nodes, with pods, policies, Services, and traffic.
func newVersions(t *testing.T, p programs, flags []string) *versions {
	g := newPolicyLabOf(t, &p, flags...)
	v := &versions{policyLab: g, serviceLab: &serviceLab{g.external}, direct: &traffic{t: t}}
	v.labels["far"] = "stranger"
	v.writePods()
	v.policy("in", allowClients)
	v.policy("out", allowWeb)
	// A NodePort Service of a pod that no policy selects, and a Service of the isolated pod.
	outer := bytes.ReplaceAll(serviceYAML("outer", serviceOfFar, "  type: NodePort", v.far), []byte(strconv.Itoa(backendPort)), []byte(strconv.Itoa(echoPort)))
	v.writeManifest("outer.yaml", onNodes(outer))
	v.writeManifest("inner.yaml", serviceYAML("inner", serviceOfNear, "", v.pod))
	for _, to := range at(echoPort, v.far.addresses...) {
		serveEcho(t, v.far.netns, to)
		var echo net.PacketConn
		err := v.far.netns.Do(func() (err error) {
			echo, err = net.ListenPacket("udp", to.String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { echo.Close() })
		if err := growReceiveBuffer(echo.(*net.UDPConn)); err != nil {
			t.Fatal(err)
		}
		go echoPackets(echo)
	}
	v.expectPolicies()
	v.expectConnections()
	v.startTraffic()
	return v
}

// expectPolicies waits until exactly the new connections succeed that policies allow.
func (v *versions) expectPolicies() {
	v.t.Helper()
	v.expectPorts(v.near, v.pod, backendPort, otherPort)
	v.expectPorts(v.far, v.pod)
	v.expectPorts(v.outside, v.pod)
	v.expectPorts(v.near, v.far)
	v.expectPorts(v.pod, v.far, backendPort, otherPort)
}

// expectConnections waits until new translated connections succeed.
func (v *versions) expectConnections() {
	v.t.Helper()
	for i := range serviceOfFar {
		inner, outer := netip.AddrPortFrom(serviceOfNear[i], servicePort), netip.AddrPortFrom(serviceOfFar[i], servicePort)
		for _, from := range []machine{v.near, v.node} {
			v.serviceLab.expectReply(from, inner, v.pod)
		}
		for from, to := range map[*machine]netip.AddrPort{&v.pod: outer, &v.outside: netip.AddrPortFrom(v.node.addresses[i], nodePort)} {
			eventually(v.t, func() error {
				if err := askEcho(from.netns, to); err != nil {
					return fmt.Errorf("%s to %s: %w", from.name, to, err)
				}
				return nil
			})
		}
	}
	v.expect(v.pod, v.outside, v.node)
}

func (v *versions) startTraffic() {
	v.t.Helper()
	for _, a := range v.pod.addresses {
		s, err := startStream("stream near→pod "+family(a), v.near.netns, v.pod.netns, a)
		v.direct.add(s, err)
		v.direct.streams = append(v.direct.streams, s)
	}
	for _, a := range v.pod.addresses {
		r, err := startRequests("requests near→pod "+family(a), "udp", v.near.netns, v.pod.netns, a)
		v.direct.add(r, err)
	}
	v.startRemembered()
	targets := at(backendPort, v.pod.addresses...)
	v.denied = []*probe{
		probeAt(slices.Concat(targets, at(servicePort, serviceOfNear...)), v.far),
		probeAt(targets, v.outside),
		probeAt(slices.Concat(at(backendPort, v.far.addresses...), at(servicePort, serviceOfFar...)), v.near),
	}
	var err error
	if v.received, err = datagrams(v.pod.netns, v.pod.addresses[0]); err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { v.received.socket.Close() })
	for _, from := range []machine{v.near, v.far, v.outside} {
		sendTo(v.t, from.netns, v.pod.addresses[0])
	}
	for _, to := range at(servicePort, serviceOfFar...) {
		for _, protocol := range []string{"tcp", "udp"} {
			v.processes = append(v.processes, startProcess(v.t, v.pod.netns, protocol, to))
		}
	}
	v.waitProgress()
}

func (v *versions) startRemembered() {
	v.t.Helper()
	for _, a := range v.far.addresses {
		r, err := startRequests("udp requests pod→far "+family(a), "udp", v.pod.netns, v.far.netns, a)
		v.remember(r, err)
	}
	for i, a := range v.outside.addresses {
		for _, protocol := range []string{"tcp", "udp"} {
			masqueraded, err := startRequests(protocol+" requests pod→external "+family(a), protocol, v.pod.netns, v.outside.netns, a)
			v.remember(masqueraded, err)
			inside, err := askAt(protocol+" requests pod→Service→far "+family(a), protocol, v.pod.netns, netip.AddrPortFrom(serviceOfFar[i], servicePort))
			v.remember(inside, err)
			atNode, err := askAt(protocol+" requests external→port of node→far "+family(a), protocol, v.outside.netns, netip.AddrPortFrom(v.node.addresses[i], nodePort))
			v.remember(atNode, err)
		}
	}
}

func (v *versions) remember(r *requests, err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
	v.remembered = append(v.remembered, r)
}

// waitProgress waits until all traffic has progressed.
func (v *versions) waitProgress() {
	v.t.Helper()
	v.direct.waitProgress()
	for _, p := range v.processes {
		p.waitProgress(v.t)
	}
	near := v.received.from(v.near.addresses[0])
	before := near.Load()
	eventually(v.t, func() error {
		if near.Load() < before+20 {
			return errors.New("nothing arrives from near at the isolated pod")
		}
		return nil
	})
	for _, from := range []machine{v.far, v.outside} {
		if n := v.received.from(from.addresses[0]).Load(); n > 0 {
			v.t.Errorf("%d datagrams of %s arrive at the isolated pod", n, from.name)
		}
	}
}

// replaceBy replaces the agents of these nodes, one after the other, and the plugin. lists reports whether the version
// has a committedList; one without it leaves the pins of other versions to `beeline-agent uninstall`
// (docs/decisions/35-layouts-by-meaning.md).
func (v *versions) replaceBy(p programs, flags []string, killed, lists bool, nodes ...*node) {
	v.t.Helper()
	cut := false
	for _, n := range nodes {
		before := pinsOf(v.t, n)
		if killed {
			v.kill(n)
		} else if err := v.terminate(n); err != nil {
			v.t.Errorf("stop agent of %s: %v", n.Name, err)
		}
		killed = !killed
		v.waitProgress()
		v.start(n, p, flags...)
		v.waitReady(n)
		v.waitProgress()
		now := pinsOf(v.t, n)
		var replaced []string
		for _, pin := range now {
			if table, _, _ := strings.Cut(pin, "@"); table != committedList && !slices.Contains(before, pin) {
				replaced = append(replaced, table)
			}
		}
		v.t.Logf("%s has replaced %q", n.Name, replaced)
		cut = cut || slices.Contains(replaced, "nat") || slices.Contains(replaced, "conntrack")
		v.wantNoProblems(n, p)
		if lists {
			wantOnlyCommitted(v.t, n)
		}
	}
	v.plugin = &p
	if cut {
		for _, r := range v.remembered {
			r.client.Close() // its read may wait for a lost reply
			v.t.Logf("its map began empty: %v", r.finishWithin(0))
		}
		v.remembered = nil
	}
	v.expectPolicies()
	v.expectConnections()
	if cut {
		v.startRemembered()
	}
	v.exchangePods()
	v.waitProgress()
}

// exchangePods adds a pod to each node, connects them with each other and with those of the previous version, and deletes
// the latter.
func (v *versions) exchangePods() {
	v.t.Helper()
	pair := [2]*testbed.Pod{}
	v.version++
	for i, n := range v.nodes[:2] {
		pair[i] = v.addPod(n, fmt.Sprintf("added-%d-%d", v.version, i))
	}
	for _, others := range append(v.added, pair) {
		for i := range pair {
			if err := errors.Join(v.reach(pair[i], others[1-i]), v.reach(others[1-i], pair[i])); err != nil {
				v.t.Error(err)
			}
		}
	}
	for _, others := range v.added {
		for i, n := range v.nodes[:2] {
			v.delPod(n, others[i])
		}
	}
	v.added = [][2]*testbed.Pod{pair}
}

// wantNoProblems waits until `beeline status` of a version reports no problem.
func (v *versions) wantNoProblems(n *node, p programs) {
	v.t.Helper()
	eventually(v.t, func() error {
		out, err := n.Output(v.t.Context(), p.Command(), "status", "-o", "json", "--socket", n.socket())
		var status struct{ Problems []string }
		if err = errors.Join(err, json.Unmarshal(out, &status)); err != nil {
			return err
		}
		if len(status.Problems) > 0 {
			return fmt.Errorf("problems of %s: %q", n.Name, status.Problems)
		}
		return nil
	})
}

// wantOnlyCommitted fails the test unless exactly the maps that the agent uses are pinned.
func wantOnlyCommitted(t *testing.T, n *node) {
	t.Helper()
	used, err := os.Readlink(filepath.Join(n.BPFFS, "maps", committedList))
	if err != nil {
		t.Fatal(err)
	}
	want := append(strings.Split(used, ","), committedList)
	slices.Sort(want)
	if got := pinsOf(t, n); !slices.Equal(got, want) {
		t.Errorf("pins of %s are %q, want %q", n.Name, got, want)
	}
}

// finish ends all traffic and fails the test if something was lost or a denied packet passed.
func (v *versions) finish() {
	v.t.Helper()
	for _, p := range v.denied {
		p.finish(v.t)
	}
	for _, p := range v.processes {
		p.finish(v.t)
	}
	for _, r := range v.remembered {
		v.direct.flows = append(v.direct.flows, r)
	}
	v.direct.finish()
}

// remove uninstalls with the programs of this version, and fails the test if something is left.
func (v *versions) remove(p programs) {
	v.t.Helper()
	for _, name := range []string{"policy-in.yaml", "policy-out.yaml", "inner.yaml", "outer.yaml", "pods.yaml"} {
		v.writeManifest(name, nil)
	}
	h := newHost(v.t, p)
	pods, err := v.lab.Pods()
	if err != nil {
		v.t.Fatal(err)
	}
	for _, n := range v.nodes[:2] {
		for _, pod := range pods {
			if pod.Node == n.Name {
				v.delPod(n, pod)
			}
		}
		v.waitNoTraces(n)
		if err := v.terminate(n); err != nil {
			v.t.Errorf("stop agent of %s: %v", n.Name, err)
		}
		args := append([]string{"uninstall", "--state-dir", n.stateDir(), "--bpffs", n.BPFFS}, h.flags()...)
		if _, err := n.Output(v.t.Context(), p.Agent(), args...); err != nil {
			v.t.Error(err)
		}
		err := filepath.WalkDir(n.BPFFS, func(path string, f fs.DirEntry, err error) error {
			if err == nil && path != n.BPFFS && filepath.Ext(path) != ".debug" { // the kernel's own
				v.t.Errorf("left pinned on %s: %s", n.Name, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			v.t.Error(err)
		}
	}
}

// process is a process that sends requests to an echo server over one connection.
type process struct {
	what    string
	cmd     *exec.Cmd
	answers *countingWriter
	ended   chan error
}

// countingWriter counts bytes.
type countingWriter struct{ atomic.Int64 }

func (w *countingWriter) Write(data []byte) (int, error) {
	w.Add(int64(len(data)))
	return len(data), nil
}

// startProcess starts a process in the cgroup of a namespace.
func startProcess(t *testing.T, from testbed.Netns, protocol string, to netip.AddrPort) *process {
	t.Helper()
	// A line is one byte, because bash reads one byte of a datagram.
	script := fmt.Sprintf(`exec 3<>/dev/%s/%s/%d; while echo >&3 && read -t 20 -u 3; do echo -n .; sleep 0.02; done; exit 1`, protocol, to.Addr(), to.Port())
	p := &process{fmt.Sprintf("process over %s to %s", protocol, to), exec.Command("bash", "-c", script), &countingWriter{}, make(chan error, 1)}
	p.cmd.Stdout, p.cmd.WaitDelay = p.answers, time.Second
	if err := from.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// waitProgress waits for more replies.
func (p *process) waitProgress(t *testing.T) {
	t.Helper()
	before := p.answers.Load()
	eventually(t, func() error {
		select {
		case err := <-p.ended:
			t.Fatalf("%s: ended after %d replies: %v", p.what, p.answers.Load(), err)
		default:
		}
		if p.answers.Load() < before+3 {
			return fmt.Errorf("%s: no reply after %d", p.what, p.answers.Load())
		}
		return nil
	})
}

// finish ends the process.
func (p *process) finish(t *testing.T) {
	t.Helper()
	p.waitProgress(t)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Errorf("%s: %v", p.what, err)
	}
	if err := <-p.ended; err == nil {
		t.Errorf("%s: ended by itself", p.what)
	}
}

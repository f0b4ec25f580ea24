package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
)

// serviceLab is an external lab in which Beeline implements Services.
type serviceLab struct{ *external }

func newServiceLab(t *testing.T, flags ...string) *serviceLab {
	return &serviceLab{newExternal(t, append([]string{"--services=ebpf"}, flags...)...)}
}

// serviceYAML returns a dual-stack Service with a TCP port and a UDP port, and its EndpointSlices.
func serviceYAML(name string, addresses []netip.Addr, more string, backends ...machine) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec:\n  clusterIPs: [%s, '%s']\n"+
		"  ports: [{name: tcp, port: %d, protocol: TCP}, {name: udp, port: %d, protocol: UDP}]\n%s\n", name, addresses[0], addresses[1], servicePort, servicePort, more)
	for i, family := range []string{"IPv4", "IPv6"} {
		fmt.Fprintf(&text, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: %s\n"+
			"metadata: {name: %s-%s, namespace: default, labels: {kubernetes.io/service-name: %s}}\n"+
			"ports: [{name: tcp, port: %d, protocol: TCP}, {name: udp, port: %d, protocol: UDP}]\nendpoints:\n", family, name, strings.ToLower(family), name, backendPort, backendPort)
		for _, b := range backends {
			fmt.Fprintf(&text, "- {addresses: ['%s'], conditions: {ready: true}}\n", b.addresses[i])
		}
	}
	return text.Bytes()
}

// fetch sends a request over TCP from a process in the pod's cgroup, where programs translate sockets. It returns the
// reply.
func fetch(t *testing.T, from testbed.Netns, to netip.AddrPort) (string, error) {
	t.Helper()
	script := fmt.Sprintf(`exec 3<>/dev/tcp/%s/%d && echo %s >&3 && read -t 10 -u 3 reply && echo "$reply"`, to.Addr(), to.Port(), capture.Marker)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := from.Run(cmd)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errOut.Bytes())
	}
	return nameOf(out.String()), err
}

// nameOf is the name of the machine in a reply of serveName.
func nameOf(reply string) string {
	return strings.TrimSuffix(strings.TrimSpace(reply), " "+capture.Marker)
}

// serveName runs a TCP server that replies with the name of the machine and the marker.
func serveName(t *testing.T, at machine, port uint16) {
	t.Helper()
	for _, a := range at.addresses {
		var l net.Listener
		err := at.netns.Do(func() (err error) {
			l, err = net.Listen("tcp", netip.AddrPortFrom(a, port).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					_ = conn.SetDeadline(time.Now().Add(patience))
					if _, err := conn.Read(make([]byte, 16)); err == nil {
						_, _ = fmt.Fprintln(conn, at.name, capture.Marker)
					}
				}()
			}
		}()
	}
}

// expectReply waits until a process at from gets a reply of one of these machines from an address.
func (b *serviceLab) expectReply(from machine, to netip.AddrPort, want ...machine) {
	b.t.Helper()
	eventually(b.t, func() error {
		got, err := fetch(b.t, from.netns, to)
		if err != nil {
			return fmt.Errorf("%s to %s: %w", from.name, to, err)
		}
		if !slices.ContainsFunc(want, func(w machine) bool { return got == w.name }) {
			return fmt.Errorf("%s to %s: reply of %q", from.name, to, got)
		}
		return nil
	})
}

// Pods and the node reach a Service in a manifest. It follows its endpoints, and rejects connections without any.
func TestServiceAtSockets(t *testing.T) {
	b := newServiceLab(t)
	serveName(t, b.far, backendPort)
	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, "", b.far))
	for _, a := range serviceOfFar {
		for _, client := range []machine{b.pod, b.node, b.peer, b.far} {
			b.expectReply(client, netip.AddrPortFrom(a, servicePort), b.far)
		}
	}
	serveName(t, b.pod, backendPort)
	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, "", b.pod))
	for _, a := range serviceOfFar {
		for _, client := range []machine{b.far, b.pod} { // both agents have read it
			b.expectReply(client, netip.AddrPortFrom(a, servicePort), b.pod)
		}
	}
	// It works without an agent and with the next one.
	b.kill(b.here)
	b.expectReply(b.pod, netip.AddrPortFrom(serviceOfFar[0], servicePort), b.pod)
	b.start(b.here, current(t), "--services=ebpf")
	b.waitReady(b.here)
	b.expectReply(b.pod, netip.AddrPortFrom(serviceOfFar[0], servicePort), b.pod)
	b.waitStatus(b.here, func(s *agentapi.Status) error {
		if len(s.Problems) > 0 {
			return fmt.Errorf("problems: %q", s.Problems)
		}
		return nil
	})

	b.writeManifest("service.yaml", serviceYAML("web", serviceOfFar, ""))
	for _, a := range serviceOfFar {
		eventually(t, func() error {
			_, err := fetch(t, b.pod.netns, netip.AddrPortFrom(a, servicePort))
			switch {
			case err == nil:
				return errors.New("without endpoints: a reply, want a rejected connection")
			case !strings.Contains(err.Error(), "refused"):
				return fmt.Errorf("without endpoints: want a rejected connection, not: %w", err)
			}
			return nil
		})
	}
}

// A pod's host port leads to the pod, without another plugin and without the kernel stack. A second pod with the same
// port is rejected.
func TestHostPortOfPod(t *testing.T) {
	b := newServiceLab(t)
	network := b.network(b.here, current(t), "1.0.0")
	add := func(name string) (*testbed.Pod, error) {
		pod := b.newPod(b.here, name)
		conf := runtimeConf(pod)
		conf.CapabilityArgs = map[string]any{"portMappings": []map[string]any{{"hostPort": 8081, "containerPort": backendPort, "protocol": "tcp"}}}
		_, err := network.add(t.Context(), pod, conf)
		return pod, err
	}
	first, err := add("first")
	if err != nil {
		t.Fatal(err)
	}
	b.wantPaths(b.here, map[string]string{"first": "", "pod": ""})
	server := machine{"first", first.Netns, first.Addresses}
	serveName(t, server, backendPort)
	for _, address := range b.here.Addresses {
		for _, client := range []machine{b.pod, b.node, b.far, b.outside} {
			b.expectReply(client, netip.AddrPortFrom(address.Addr(), 8081), server)
		}
	}
	if _, err := add("second"); err == nil || !strings.Contains(err.Error(), "port 8081/TCP of node n1 belongs to pod") {
		t.Errorf("a second pod with the port: %v", err)
	}
}

// A host port at an address that the node does not have gets no traffic: the cloud's metadata service may have that
// address. A problem names the pod.
func TestHostPortOfForeignAddress(t *testing.T) {
	b := newServiceLab(t)
	network := b.network(b.here, current(t), "1.0.0")
	pod := b.newPod(b.here, "thief")
	conf := runtimeConf(pod)
	var mappings []map[string]any
	foreign := []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("169.254.169.254"), 8081)}
	for _, a := range b.far.addresses {
		foreign = append(foreign, netip.AddrPortFrom(a, backendPort))
	}
	for _, at := range foreign {
		mappings = append(mappings, map[string]any{"hostPort": at.Port(), "hostIP": at.Addr().String(), "containerPort": backendPort, "protocol": "tcp"})
	}
	conf.CapabilityArgs = map[string]any{"portMappings": mappings}
	if _, err := network.add(t.Context(), pod, conf); err != nil {
		t.Fatal(err)
	}
	thief := machine{"thief", pod.Netns, pod.Addresses}
	serveName(t, thief, backendPort)
	serveName(t, b.far, backendPort)
	b.waitStatus(b.here, func(s *agentapi.Status) error {
		for _, at := range foreign {
			if !strings.Contains(strings.Join(s.Problems, "\n"), "its hostIP "+at.Addr().String()+" is not an address of this node") {
				return fmt.Errorf("%s is not among the problems: %q", at, s.Problems)
			}
		}
		return nil
	})
	for _, client := range []machine{b.pod, b.node} {
		if got, err := fetch(t, client.netns, foreign[0]); err == nil {
			t.Errorf("%s to the metadata service: reply of %s", client.name, got)
		}
		for _, at := range foreign[1:] {
			b.expectReply(client, at, b.far)
		}
	}
}

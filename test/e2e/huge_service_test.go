package e2e

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// A Service of 1,000 ports and 1,000 externalIPs gets the share of one Service. While it changes, pods are added, reach
// another Service, and the agent's memory stays small. The time of ADD is logged, not tested; see
// docs/decisions/32-tenant-shares.md.
func TestAddBesideHugeService(t *testing.T) {
	const pods, changes, frontendsOfOne = 20, 5, 1024
	c := up(t, testbed.Options{}, "--services=ebpf", "--external-ips=198.18.0.0/15")
	server := c.addPod(c.nodes[0], "server")
	end := machine{"server", server.Netns, append(server.Addresses, server.Addresses...)}
	serveEcho(t, end.netns, at(backendPort, server.Addresses[0])[0])
	c.writeManifest("web.yaml", ipv4Only(serviceYAML("web", serviceOfFar, "", end)))
	frontend := at(servicePort, serviceOfFar[0])[0]
	eventually(t, func() error { return askEcho(end.netns, frontend) })

	add := func(name string) (took []time.Duration) {
		for i := range pods {
			pod := c.newPod(c.nodes[0], fmt.Sprint(name, "-", i))
			began := time.Now()
			if _, err := c.standard(c.nodes[0]).add(t.Context(), pod, runtimeConf(pod)); err != nil {
				t.Fatalf("ADD of %s: %v", pod.Name, err)
			}
			took = append(took, time.Since(began))
			if err := askEcho(pod.Netns, frontend); err != nil {
				t.Errorf("%s to another Service: %v", pod.Name, err)
			}
			c.delPod(c.nodes[0], pod)
		}
		slices.Sort(took)
		return took
	}
	before := add("before")
	memory, _, _ := c.cost(c.nodes[0])
	stop, ended := make(chan struct{}), make(chan int, 1)
	finish := sync.OnceValue(func() int {
		close(stop)
		return <-ended
	})
	defer finish() // also when an ADD fails
	go func() {
		written := 0
		for {
			select {
			case <-stop:
				ended <- written
				return
			default:
			}
			if err := netlab.WriteManifest(c.manifests, "huge.yaml", hugeService(1000, 1000, written%changes)); err != nil {
				t.Error(err)
			}
			written++
			time.Sleep(100 * time.Millisecond)
		}
	}()
	meanwhile := add("meanwhile")
	t.Logf("the Service was written %d times", finish())
	c.waitStatus(c.nodes[0], func(s *agentapi.Status) error {
		var problems []string
		for _, p := range s.Problems {
			if strings.Contains(p, "default/huge") {
				problems = append(problems, p)
			}
		}
		if len(problems) != 1 || !strings.Contains(problems[0], "do not answer: one Service has at most") {
			return fmt.Errorf("problems are %q", s.Problems)
		}
		// Its cluster IP has a frontend for each port, and web has two.
		if n := entries(s, "services"); n > 1000+frontendsOfOne+2 {
			return fmt.Errorf("%d frontends", n)
		}
		return nil
	})
	after, _, _ := c.cost(c.nodes[0])
	const enough = 200 // MiB; without a bound it is more than 1,100
	if after > enough {
		t.Errorf("the agent's peak memory is %d MiB, before %d", after, memory)
	}
	t.Logf("ADD takes %v (median), %v (maximum); while the Service changes %v and %v; peak memory %d and %d MiB",
		before[pods/2], before[pods-1], meanwhile[pods/2], meanwhile[pods-1], memory, after)
}

// ipv4Only removes IPv6 from a Service's manifest.
func ipv4Only(service []byte) []byte {
	objects := bytes.Split(service, []byte("---\n"))
	objects[0] = bytes.ReplaceAll(objects[0], fmt.Appendf(nil, ", '%s'", serviceOfFar[1]), nil)
	return bytes.Join(objects[:2], []byte("---\n"))
}

// hugeService is a Service with many ports and external addresses. Each variant has other ports.
func hugeService(ports, addresses, variant int) []byte {
	var text bytes.Buffer
	text.WriteString("apiVersion: v1\nkind: Service\nmetadata: {name: huge, namespace: default}\nspec:\n  clusterIP: 10.96.0.66\n  clusterIPs: [10.96.0.66]\n  externalIPs: [")
	for i := range addresses {
		fmt.Fprintf(&text, "198.18.%d.%d,", i>>8, i&0xff)
	}
	text.WriteString("]\n  ports: [")
	for i := range ports {
		fmt.Fprintf(&text, "{name: p%[1]d, port: %[2]d, protocol: TCP},", i, 1+i+variant*ports)
	}
	text.WriteString("]\n")
	return text.Bytes()
}

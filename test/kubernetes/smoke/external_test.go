//go:build kubernetes

package smoke

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// externalSeesNodes: packets of pods to external hosts have their node's address, those of pods of IPPools the pod's.
func externalSeesNodes(t *testing.T) {
	needOutside(t)
	c := useFixtures(t)
	const who, echo = 28080, 27000
	ctx, cancel := context.WithCancel(context.Background())
	server := cluster.Command(ctx, externalProbe, "serve",
		fmt.Sprintf("-http=:%d", who), fmt.Sprintf("-echo=:%d", echo))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = server.Wait() // it was killed
	})
	awaitService(t, outside(), hostPort("127.0.0.1", who))
	for _, client := range []testPod{c.a, c.remote, c.hostNear, c.hostFar} {
		external := outsideAddress(t, client.node)
		if isBeeline() { // the testbed's bridge network does not masquerade: the external host has routes to pods
			seen := client.node.address
			if poolWith(netip.MustParseAddr(client.address)) != "" {
				seen = client.address
			}
			wantReply(t, client.runner, hostPort(external, who), reply{Client: seen})
		}
		client.want(t, "ping", external)
		client.want(t, "echo", "tcp", hostPort(external, echo), "-bytes=10000000")
		client.want(t, "echo", "udp", hostPort(external, echo), "-count=20")
	}
}

// apiServerFromPods: pods reach the API server through its Service, with their service account.
func apiServerFromPods(t *testing.T) {
	c := useFixtures(t)
	for _, client := range []testPod{c.a, c.remote, c.hostNear} {
		if output := client.want(t, "api"); !strings.Contains(output, "v1.") {
			t.Errorf("%s: the API server says it is version %q", client.pod, output)
		}
	}
}

// outsideAddress is the external host's address towards a node.
func outsideAddress(t *testing.T, towards node) string {
	t.Helper()
	output, err := outside().run("ip", "-o", "route", "get", towards.address)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(output, " src ")
	if !found {
		t.Fatalf("no source address in %q", output)
	}
	return strings.Fields(after)[0]
}

package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// denyAll isolates the pods of the namespace default for ingress.
const denyAll = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny-all, namespace: default}
spec: {podSelector: {}, policyTypes: [Ingress]}
`

// Pods with the annotation meet, those without do not; a policy ends their connection, and so does the end of the
// annotation. The agent's status and maps say so.
func TestSameNode(t *testing.T) {
	lab := bareLab(t, "t-same-node")
	c := beelineSameNode
	if why := c.Unsupported(); why != "" {
		testenv.Missing(t, why)
	}
	ctx := t.Context()
	if err := c.Up(ctx, lab); err != nil {
		t.Fatal(err)
	}
	node := lab.Node(0)
	add := func(n Network, name string) *testbed.Pod {
		pod, err := AddPod(ctx, n, lab, node, name)
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	plain := c
	plain.annotations = nil
	client, server, other := add(c, "client"), add(c, "server"), add(plain, "other")
	status := awaitSameNode(t, node, "2 pods opted in")
	if !slices.ContainsFunc(status.Maps, func(m agentapi.Map) bool { return m.Name == "sn_sockets" && m.Bytes > 0 }) {
		t.Error("the status has no map sn_sockets")
	}
	serve(t, server)
	serve(t, other)

	// A pod without the annotation.
	end := talk(t, client, other)
	time.Sleep(time.Second)
	awaitSameNode(t, node, "0 of their 0 sockets meet")
	end()

	end = talk(t, client, server)
	awaitSameNode(t, node, "4 of their 4 sockets meet")
	end()
	awaitSameNode(t, node, "0 of their 0 sockets meet")

	// A policy: the connection ends, for the applications too.
	end = talk(t, client, server)
	awaitSameNode(t, node, "4 of their 4 sockets meet")
	policy := filepath.Join(manifestsOf(lab), "policy.yaml")
	if err := os.WriteFile(policy, []byte(denyAll), 0o644); err != nil {
		t.Fatal(err)
	}
	awaitSameNode(t, node, "0 of their 0 sockets meet")
	end()
	if err := os.Remove(policy); err != nil {
		t.Fatal(err)
	}

	// Without the annotation the connection goes on as packets.
	end = talk(t, client, server)
	awaitSameNode(t, node, "4 of their 4 sockets meet")
	if err := os.Remove(filepath.Join(manifestsOf(lab), "pod-server.yaml")); err != nil {
		t.Fatal(err)
	}
	awaitSameNode(t, node, "1 pods opted in, 2 of their 4 sockets meet") // netperf's other connection is idle
	end()
}

// awaitSameNode waits until the agent's status of same-node sockets has these words.
func awaitSameNode(t *testing.T, node *testbed.Node, words string) (status *agentapi.Status) {
	t.Helper()
	reason := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var err error
		if status, err = agentapi.NewClient(agentSocket(node)).Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, choice := range status.Choices {
			if choice.Name == "same-node" {
				reason = choice.Reason
			}
		}
		if strings.Contains(reason, words) {
			return status
		}
	}
	t.Fatalf("the status says %q, want %q; problems: %q", reason, words, status.Problems)
	return nil
}

// serve runs netserver in a pod until the lab is taken down.
func serve(t *testing.T, pod *testbed.Pod) {
	t.Helper()
	if _, err := pod.Background(exec.Command("netserver", "-D", "-4")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
}

// talk has netperf exchange requests and replies until it is ended.
func talk(t *testing.T, from, to *testbed.Pod) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		out, err := from.Output(ctx, "netperf", "-H", to.Addresses[0].String(), "-t", "TCP_RR", "-l", "60")
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		done <- err
	}()
	return func() {
		cancel()
		var exit *exec.ExitError
		if err := <-done; err != nil && !errors.As(err, &exit) && !errors.Is(err, context.Canceled) {
			t.Errorf("netperf: %v", err)
		}
	}
}

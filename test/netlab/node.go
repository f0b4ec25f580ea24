package netlab

import (
	"bytes"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/services"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// Socket is the path of the agent's socket on a node.
func Socket(n *testbed.Node) string { return filepath.Join(n.StateDir, "agent.sock") }

// StateDir is the agent's state directory on a node.
func StateDir(n *testbed.Node) string { return filepath.Join(n.StateDir, "agent") }

// LogFile is the path of the agent's log on a node.
func LogFile(n *testbed.Node) string { return filepath.Join(n.StateDir, "agent.log") }

// API is a client of the node's agent.
func API(n *testbed.Node) *agentapi.Client { return agentapi.NewClient(Socket(n)) }

// NodeObject is the Node object that an API server would have, without spec.podCIDR and conditions, so that a test which
// changes spec.podCIDRs changes nothing else.
func NodeObject(n *testbed.Node) *corev1.Node {
	object := services.Node(n)
	object.Spec.PodCIDR, object.Status.Conditions = "", nil
	return object
}

// WriteManifest replaces a manifest by rename, so that no agent reads a part of it.
func WriteManifest(dir, name string, text []byte) error {
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".tmp", bytes.TrimSpace(text), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

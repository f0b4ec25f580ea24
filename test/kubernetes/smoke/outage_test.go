//go:build kubernetes

package smoke

import (
	"errors"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// outage is how long the API server is down: longer than the timeout after which any request is retried.
const outage = 15 * time.Second

// apiServerOutage: while the API server is unreachable, traffic continues, pods get a network, and a restarted agent
// continues with its node's state. Afterwards everything recovers.
func apiServerOutage(t *testing.T) {
	needBeeline(t)
	bed := needTestbed(t, "cut off the API server")
	c := useFixtures(t)
	traffic := startTraffic(t, c)
	victim := podObject("victim", c.near.name)
	victim.Annotations = inPool(ofRange()) // an address of an IPPool needs the API server
	applyForTest(t, victim)
	waitReady(t, victim.Name)
	sandbox := sandboxOf(t, c.near.name, victim.Name)
	process, err := agentProcess(c.far.name)
	if err != nil {
		t.Fatal(err)
	}

	// Reject, not drop: open connections end and new ones fail, as if the process had ended.
	program := familyOf(bed.Cluster.ControlPlane.Addresses()[0].String(), "iptables", "ip6tables")
	refuse := func(action string) error {
		_, err := outside().run(program, action, "INPUT", "-p", "tcp", "--dport", "6443", "-j", "REJECT", "--reject-with", "tcp-reset")
		return err
	}
	if err := refuse("-I"); err != nil {
		t.Fatal(err)
	}
	lifted := false
	lift := func() {
		if !lifted {
			lifted = true
			if err := refuse("-D"); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(lift)
	begin := time.Now()
	if _, err := kubectl("get", "nodes", "--request-timeout=2s"); err == nil {
		t.Fatal("the API server is still reachable")
	}
	// The kubelet replaces a dead sandbox without the API server: DEL and ADD during the outage.
	_, killed := onNode(c.near.name).run("ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", sandbox)
	_, killedAgent := onNode(c.far.name).run("kill", "-KILL", process)
	if err := errors.Join(killed, killedAgent); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		now, err := endpointOf(c.near.name, victim.Name)
		if err == nil && now.ContainerID == sandbox {
			err = errors.New("the pod still has its old sandbox")
		}
		return err
	})
	eventually(t, func() error { _, err := agentStatus(c.far.name); return err })
	for _, address := range []string{c.a.echo(), c.remote.echo()} {
		onNode(c.near.name).want(t, "echo", "tcp", address, "-bytes=1000000")
		onNode(c.far.name).want(t, "echo", "tcp", address, "-bytes=1000000")
	}
	time.Sleep(outage - time.Since(begin))
	lift()

	traffic.waitProgress()
	traffic.finish()
	waitReady(t, victim.Name)
	for _, n := range []node{c.near, c.far} {
		waitAgentReady(t, n.name)
		waitAgentHasPods(t, n.name)
	}
}

// endpointOf returns the agent's endpoint of a test pod.
func endpointOf(node, pod string) (agentapi.Endpoint, error) {
	all, err := agentEndpoints(node)
	for _, e := range all {
		if e.Pod.Namespace == namespace && e.Pod.Name == pod {
			return e, nil
		}
	}
	return agentapi.Endpoint{}, errors.Join(err, errors.New("the agent of "+node+" knows no pod "+pod))
}

// sandboxOf is the id of the pod's sandbox in the runtime and the agent.
func sandboxOf(t *testing.T, node, pod string) string {
	t.Helper()
	e, err := endpointOf(node, pod)
	if err != nil {
		t.Fatal(err)
	}
	return e.ContainerID
}

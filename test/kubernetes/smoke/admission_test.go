//go:build kubernetes

package smoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/cluster/apiserver"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// admissionPolicyName is that of the chart's ValidatingAdmissionPolicy.
const admissionPolicyName = "beeline-agent"

// agentsKeepToTheirNode: with the manifest's admission policy an agent still removes its taint and sets its
// condition. With a node's token no other Node can be changed, and nothing else of its own.
func agentsKeepToTheirNode(t *testing.T) {
	needBeeline(t)
	nodes := clusterNodes(t)
	own, other := nodes[0], nodes[1]
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	eventually(t, func() error {
		err := get(&policy, "validatingadmissionpolicy", admissionPolicyName)
		if err == nil && policy.Status.ObservedGeneration != policy.Generation {
			err = errors.New("the API server has not checked the types of the policy yet")
		}
		return err
	})
	if checked := policy.Status.TypeChecking; checked != nil && len(checked.ExpressionWarnings) > 0 {
		t.Errorf("the API server warns of the policy: %+v", checked.ExpressionWarnings)
	}
	agentBecomesReady(t, own.name)

	client := agentClient(t, own.name)
	const unavailable = `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"True","reason":"Forged"}]}}`
	taint := func(effect corev1.TaintEffect) string {
		return fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":%q}]}}`, apiserver.NotReadyTaint, effect)
	}
	for _, c := range []struct {
		name, node, subresource, body string
		// denied is part of the policy's message, empty if the write is allowed.
		denied string
	}{
		{"its condition", own.name, "/status", unavailable, ""},
		{"its taint", own.name, "", taint(corev1.TaintEffectNoSchedule), ""},
		{"the condition of another node", other.name, "/status", unavailable, "and no other"},
		{"the taint of another node", other.name, "", taint(corev1.TaintEffectNoExecute), "and no other"},
		{"its addresses", own.name, "/status", `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`, "conditions into the status"},
		{"another condition", own.name, "/status", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "NetworkUnavailable of its Node, and no other"},
		{"its spec", own.name, "", `{"spec":{"unschedulable":true}}`, "its own taint"},
		{"another taint", own.name, "", `{"spec":{"taints":[{"key":"forged","effect":"NoExecute"}]}}`, "its own taint"},
		{"its labels", own.name, "", `{"metadata":{"labels":{"forged":"yes"}}}`, "labels nor annotations"},
	} {
		// A dry run passes the same admission and writes nothing.
		reply := client.send(t, http.MethodPatch, "/api/v1/nodes/"+c.node+c.subresource, "application/strategic-merge-patch+json", c.body)
		switch by := "ValidatingAdmissionPolicy '" + admissionPolicyName + "'"; {
		case c.denied == "" && reply != "":
			t.Errorf("%s: the agent of %s cannot write it: %s", c.name, own.name, reply)
		case c.denied != "" && (!strings.Contains(reply, by) || !strings.Contains(reply, c.denied)):
			t.Errorf("%s: the reply is %q, want a denial by %s with %q", c.name, reply, by, c.denied)
		}
	}
}

// agentBecomesReady sets the taint and the condition of a node without an agent, and waits until a new agent has
// removed both.
func agentBecomesReady(t *testing.T, node string) {
	t.Helper()
	old := agentOn(t, node)
	mustKubectl(t, "taint", "node", node, apiserver.NotReadyTaint+":NoSchedule", "--overwrite")
	mustKubectl(t, "patch", "node", node, "--subresource=status", "-p",
		`{"status":{"conditions":[{"type":"NetworkUnavailable","status":"True","reason":"Smoke"}]}}`)
	mustKubectl(t, "-n", agentNamespace, "delete", "pod", old, "--timeout="+patience.String())
	waitRollout(t)
	eventually(t, func() error {
		var n corev1.Node
		if err := get(&n, "node", node); err != nil {
			return err
		}
		for _, taint := range n.Spec.Taints {
			if taint.Key == apiserver.NotReadyTaint {
				return fmt.Errorf("node %s has the taint %s", node, taint.Key)
			}
		}
		status, why, err := nodeCondition(node, corev1.NodeNetworkUnavailable)
		if err == nil && status != corev1.ConditionFalse {
			err = fmt.Errorf("node %s: condition NetworkUnavailable is %s (%s)", node, status, why)
		}
		return err
	})
}

// nodeClient writes to Nodes.
type nodeClient struct{ http.Client }

// agentClient uses the token that the node's kubelet has mounted for the agent.
func agentClient(t *testing.T, node string) nodeClient {
	t.Helper()
	all, err := agentPods(node)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d agents on %s (%v)", len(all), node, err)
	}
	token, err := onNode(node).run("sh", "-c", `cat /var/lib/kubelet/pods/"$1"/volumes/kubernetes.io~projected/*/token`, "sh", string(all[0].UID))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig, socket := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "socket")
	if output, err := exec.Command("install", "-m", "600", cluster.Kubeconfig(), kubeconfig).CombinedOutput(); err != nil {
		t.Fatalf("copy kubeconfig: %v: %s", err, output)
	}
	mustKubectl(t, "--kubeconfig="+kubeconfig, "config", "set-credentials", "agent", "--token="+token)
	mustKubectl(t, "--kubeconfig="+kubeconfig, "config", "set-context", "--current", "--user=agent")

	// The API server is reachable from the control plane's network only; a unix socket makes it reachable from here.
	proxy := cluster.Command(context.Background(), "kubectl", "--kubeconfig="+kubeconfig, "proxy", "--unix-socket="+socket)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait()
	})
	var dialer net.Dialer
	c := nodeClient{http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", socket)
	}}}}
	eventually(t, func() error {
		response, err := c.Get("http://localhost/version")
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	return c
}

// send sends a request for a dry run. It returns the API server's message if it is denied.
func (c nodeClient) send(t *testing.T, method, path, contentType, body string) (rejection string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path+"?dryRun=All", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated {
		return ""
	}
	return response.Status + ": " + string(reply)
}

// claimsPath is that of the API server for IPClaims.
const claimsPath = "/apis/networking.beeline.dev/v1alpha1/ipclaims"

// agentsKeepToTheirClaims: with a node's token no address can be taken from a pod of another node, unless that node is gone.
func agentsKeepToTheirClaims(t *testing.T) {
	needBeeline(t)
	nodes := clusterNodes(t)
	own, other := nodes[0].name, nodes[1].name
	claim := func(name, address, node string) v1alpha1.IPClaim {
		return v1alpha1.IPClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "IPClaim"}, ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.IPClaimSpec{Address: address, Pool: "smoke", Node: node, ContainerID: "smoke", IfName: "eth0", Pod: v1alpha1.IPClaimPod{Namespace: "smoke", Name: "pod"}},
		}
	}
	applyForTest(t, claim("192-0-2-1", "192.0.2.1", own), claim("192-0-2-2", "192.0.2.2", other), claim("192-0-2-3", "192.0.2.3", "smoke-is-gone"))
	client := agentClient(t, own)
	body := func(c v1alpha1.IPClaim) string {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	changed := func(name string, change func(*v1alpha1.IPClaim)) string {
		var now v1alpha1.IPClaim
		if err := get(&now, "ipclaim", name); err != nil {
			t.Fatal(err)
		}
		change(&now)
		return body(now)
	}
	take := func(c *v1alpha1.IPClaim) { c.Spec.Node, c.Spec.ContainerID = own, "forged" }
	keep := func(c *v1alpha1.IPClaim) { c.Spec.ContainerID = "" }
	stay := func(c *v1alpha1.IPClaim) { c.Finalizers = []string{"example.com/stays"} }
	for _, c := range []struct {
		name, method, path, body string
		// denied is a part of the policies' messages, empty if the write is allowed.
		denied string
	}{
		{"allocates", http.MethodPost, "", body(claim("192-0-2-4", "192.0.2.4", own)), ""},
		{"releases its own", http.MethodDelete, "/192-0-2-1", "", ""},
		{"releases that of a node that is gone", http.MethodDelete, "/192-0-2-3", "", ""},
		{"takes over from a node that is gone", http.MethodPut, "/192-0-2-3", changed("192-0-2-3", take), ""},
		{"allocates for another node", http.MethodPost, "", body(claim("192-0-2-4", "192.0.2.4", other)), "and of no other"},
		{"releases that of another node", http.MethodDelete, "/192-0-2-2", "", "is not out of service"},
		{"takes that of another node", http.MethodPut, "/192-0-2-2", changed("192-0-2-2", take), "is not out of service"},
		{"keeps that of another node", http.MethodPut, "/192-0-2-2", changed("192-0-2-2", keep), "is not out of service"},
		{"a finalizer", http.MethodPut, "/192-0-2-1", changed("192-0-2-1", stay), "owners nor finalizers"},
	} {
		reply := client.send(t, c.method, claimsPath+c.path, "application/json", c.body)
		if (c.denied == "") != (reply == "") || !strings.Contains(reply, c.denied) {
			t.Errorf("%s: the reply to the agent of %s is %q, want a denial with %q", c.name, own, reply, c.denied)
		}
	}
}

package e2e

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/beeline-cni/beeline/lab/apiserver"
	labnetwork "github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// apiLab is a cluster whose agents read from an API server.
type apiLab struct {
	*cluster
	server *apiserver.Server
}

func newAPILab(t *testing.T, flags ...string) *apiLab {
	t.Helper()
	programs := current(t)
	c := newCluster(t, testbed.Options{IPv6: true})
	server, kubeconfig, err := labnetwork.ServeObjects(t.Context(), c.lab)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	for _, n := range c.nodes {
		if n.encryption = netlab.EncryptionOf(flags); n.encryption == netlab.IPsec {
			c.writeKeys(n, 1)
		}
		c.start(n, programs, append([]string{"--manifests=", "--kubeconfig=" + kubeconfig}, flags...)...)
	}
	for _, n := range c.nodes {
		c.waitReady(n)
	}
	for _, n := range c.nodes {
		if n.encryption != (netlab.Encryption{}) { // the agents announce their keys
			c.waitEncrypted(n)
		}
	}
	return &apiLab{c, server}
}

// pod adds a pod with this UID to the first node.
func (c *apiLab) pod(name, uid string) machine { return c.podOn(c.nodes[0], "default", name, uid) }

// podOn adds a pod of a namespace with this UID to a node.
func (c *apiLab) podOn(n *node, namespace, name, uid string) machine {
	c.t.Helper()
	m, err := c.tryPodOn(n, namespace, name, uid)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// tryPodOn is podOn, but after an error it deletes the pod from the network, as a runtime does.
func (c *apiLab) tryPodOn(n *node, namespace, name, uid string) (machine, error) {
	c.t.Helper()
	pod := c.newPod(n, name)
	conf := plugin.RuntimeConf(pod, namespace, name)
	conf.Args = append(conf.Args, [2]string{"K8S_POD_UID", uid})
	network := c.standard(n)
	if _, err := network.add(c.t.Context(), pod, conf); err != nil {
		return machine{}, errors.Join(err, network.del(c.t.Context(), conf))
	}
	return machine{name, pod.Netns, pod.Addresses}, nil
}

// putPod writes the Pod object of a pod to the API server.
func (c *apiLab) putPod(of machine, uid, app string) {
	c.t.Helper()
	c.putPodOn(c.nodes[0], "default", of, uid, app)
}

// putPodOn writes that of a pod of a namespace on a node.
func (c *apiLab) putPodOn(n *node, namespace string, of machine, uid, app string) {
	c.t.Helper()
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: of.name, UID: types.UID(uid), Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: n.Name},
	}
	for _, a := range of.addresses {
		object.Status.PodIPs = append(object.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	if err := c.server.Put(object); err != nil {
		c.t.Fatal(err)
	}
}

// until waits until one pod reaches the other, or does not, and returns the time that it took.
func (c *apiLab) until(reached bool, from, to machine) time.Duration {
	c.t.Helper()
	begin := time.Now()
	for _, a := range to.addresses {
		eventually(c.t, func() error {
			err := dials(from.netns, netip.AddrPortFrom(a, backendPort))
			switch {
			case reached:
				return err
			case err == nil:
				return errors.New(from.name + " reaches " + to.name)
			}
			return nil
		})
	}
	return time.Since(begin)
}

// A pod without a Pod object is denied all traffic if policies may select it; with the object its labels decide. The
// object of an earlier pod of the same name has no effect.
func TestPolicyOfAPIServer(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"ebpf": nil, "kernel": {"--routing=kernel"}} {
		t.Run(name, func(t *testing.T) {
			c := newAPILab(t, flags...)
			client := c.pod("client", "u1")
			c.putPod(client, "u1", "client")
			free := c.pod("free", "u2") // without a policy it needs no object
			serveName(t, free, backendPort)
			c.until(true, client, free)

			allow := &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "p1"},
				Spec: networkingv1.NetworkPolicySpec{
					PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
					Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
						{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "admin"}}},
					}}},
				},
			}
			if err := c.server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, allow); err != nil {
				t.Fatal(err)
			}
			c.until(false, client, free) // its labels are unknown
			c.putPod(free, "u2", "free")
			c.until(true, client, free)

			web := machine{name: "web"}
			c.putPod(web, "old", "free")
			web = c.pod("web", "new")
			serveName(t, web, backendPort)
			c.until(false, client, web)
			c.until(true, machine{name: "node", netns: c.nodes[0].Netns}, web)
			c.putPod(web, "new", "free")
			c.until(true, client, web)
			for range 3 {
				c.putPod(web, "new", "web")
				c.until(false, client, web)
				c.putPod(client, "u1", "admin")
				t.Logf("a client is allowed after %s", c.until(true, client, web))
				c.putPod(client, "u1", "client")
				c.until(false, client, web)
				c.putPod(web, "new", "free")
				c.until(true, client, web)
			}
			for _, n := range c.nodes {
				c.waitNoProblem(n)
			}
		})
	}
}

// Without the API server enforced policies stay enforced, and added pods are denied all traffic.
func TestPolicyWithoutAPIServer(t *testing.T) {
	t.Parallel()
	c := newAPILab(t)
	deny := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nothing"}}
	if err := c.server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, deny); err != nil {
		t.Fatal(err)
	}
	client, web := c.pod("client", "u1"), c.pod("web", "u2")
	c.putPod(client, "u1", "client")
	c.putPod(web, "u2", "web")
	serveName(t, web, backendPort)
	c.until(false, client, web)
	if err := c.server.Close(); err != nil {
		t.Fatal(err)
	}
	n := c.nodes[0]
	c.kill(n)
	c.start(n, current(t), "--manifests=", "--kubeconfig="+c.lab.Dir()+"/kubeconfig")
	c.waitReady(n)
	c.waitProblem(n, "NetworkPolicies wait for")
	late := c.pod("late", "u3")
	serveName(t, late, backendPort)
	for _, to := range []machine{web, late} {
		for _, a := range to.addresses {
			if err := dials(client.netns, netip.AddrPortFrom(a, backendPort)); err == nil {
				t.Errorf("%s is reachable at %s", to.name, a)
			}
			if err := dialsWithin(n.Netns, netip.AddrPortFrom(a, backendPort), patience); err != nil {
				t.Errorf("the node does not reach %s: %v", to.name, err)
			}
		}
	}
}

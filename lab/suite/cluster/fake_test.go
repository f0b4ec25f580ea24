package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/suite/cluster/remote"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/worker"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// fake is a cluster whose nodes are network namespaces and whose pods are goroutines: workers run for real, between
// addresses of a veth pair. Services and NodePorts are the pods' own addresses.
type fake struct {
	mu         sync.Mutex
	nodes      []corev1.Node
	daemonSets []appsv1.DaemonSet
	spaces     map[string]corev1.Namespace
	pods       map[string]corev1.Pod
	services   map[string]corev1.Service
	nodeNetns  map[string]testbed.Netns // by node
	networks   map[string]string        // by node: the beginning of its pods' addresses
	workers    int
	// breakPod changes a pod when it is created; deny gives the error of a request; stuck keeps namespaces.
	breakPod func(*corev1.Pod)
	deny     func(request string) error
	stuck    bool
}

func (f *fake) allow(request string) error {
	if f.deny != nil {
		return f.deny(request)
	}
	return nil
}

func forbidden(request string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: request}, "", errors.New("no"))
}

func (f *fake) Version(context.Context) (string, error) { return "v1.99.0", f.allow("version") }

func (f *fake) Get(_ context.Context, into runtime.Object, _, _ string) error {
	if err := f.allow("configmap"); err != nil {
		return err
	}
	into.(*corev1.ConfigMap).Data = map[string]string{"config.conf": "kind: KubeProxyConfiguration\nmode: ipvs\n"}
	return nil
}

func (f *fake) List(_ context.Context, into runtime.Object, namespace, selector string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	matches := func(o metav1.Object) bool {
		return o.GetNamespace() == namespace && (selector == everything || strings.HasSuffix(selector, o.GetLabels()[labelRun]))
	}
	switch list := into.(type) {
	case *corev1.NodeList:
		list.Items = f.nodes
		return f.allow("nodes")
	case *appsv1.DaemonSetList:
		list.Items = f.daemonSets
		return f.allow("daemonsets " + namespace)
	case *corev1.NamespaceList:
		for _, n := range f.spaces {
			if matches(&n) {
				list.Items = append(list.Items, n)
			}
		}
		return f.allow("namespaces")
	case *corev1.PodList:
		for _, p := range f.pods {
			if matches(&p) {
				list.Items = append(list.Items, p)
			}
		}
		return f.allow("pods")
	case *corev1.ServiceList:
		for _, s := range f.services {
			if matches(&s) {
				list.Items = append(list.Items, s)
			}
		}
		return nil
	}
	return fmt.Errorf("list %T", into)
}

func (f *fake) Create(_ context.Context, o remote.Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	o.SetCreationTimestamp(metav1.Now())
	switch o := o.(type) {
	case *corev1.Namespace:
		if err := f.allow("create namespace"); err != nil {
			return err
		}
		f.spaces[o.Name] = *o
	case *corev1.Pod:
		if err := f.allow("create pod"); err != nil {
			return err
		}
		f.createPod(o)
	case *corev1.Service:
		f.createService(o)
	}
	return nil
}

func (f *fake) Delete(_ context.Context, o remote.Object) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch o.(type) {
	case *corev1.Namespace:
		if f.stuck {
			return nil
		}
		if _, ok := f.spaces[o.GetName()]; !ok {
			return forbidden("delete namespace") // as API servers reply without rights, whether or not the namespace exists
		}
		delete(f.spaces, o.GetName())
		clear(f.pods)
		clear(f.services)
	case *corev1.Pod:
		delete(f.pods, o.GetName())
	case *corev1.Service:
		delete(f.services, o.GetName())
	}
	return nil
}

// order returns each role an address of its own.
var order = []role{podClient, podNear, podFar, nodeClient, nodeNear, nodeFar}

func (f *fake) createPod(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	r := role(p.Labels[labelRole])
	ip := fmt.Sprintf("%s%d", f.networks[p.Spec.NodeName], 10+slices.Index(order, r))
	p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	if f.breakPod != nil {
		f.breakPod(p)
	}
	f.pods[p.Name] = *p
}

func (f *fake) createService(s *corev1.Service) {
	r := role(s.Labels[labelRole])
	node := f.nodes[0].Name
	if r.onServer() {
		node = f.nodes[1].Name
	}
	s.Spec.ClusterIP = fmt.Sprintf("%s%d", f.networks[node], 10+slices.Index(order, r))
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = 31000 + s.Spec.Ports[i].Port
	}
	f.services[s.Name] = *s
}

func (f *fake) SetServicePorts(_ context.Context, _, name string, ports []corev1.ServicePort) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.services[name]
	s.Spec.Ports = ports
	f.services[name] = s
	return nil
}

func (f *fake) Worker(ctx context.Context, _, pod string) (*worker.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.pods[pod]
	if !ok {
		return nil, errors.New("no such pod")
	}
	f.workers++
	requests, in := io.Pipe()
	out, replies := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := worker.Loop(ctx, f.nodeNetns[p.Spec.NodeName], requests, replies)
		replies.Close()
		f.mu.Lock()
		f.workers--
		f.mu.Unlock()
		ended <- err
	}()
	return worker.NewConn(in, out, func() error { return <-ended }), nil
}

func newNode(name string, addresses ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// newFake makes a cluster without a network: enough for what does not reach a worker.
func newFake() *fake {
	return &fake{
		nodes:  []corev1.Node{newNode("n1", "10.79.0.1"), newNode("n2", "10.79.1.1")},
		spaces: map[string]corev1.Namespace{}, pods: map[string]corev1.Pod{}, services: map[string]corev1.Service{},
		nodeNetns: map[string]testbed.Netns{}, networks: map[string]string{"n1": "10.79.0.", "n2": "10.79.1."},
	}
}

// newNetwork makes a fake with two nodes that a veth pair joins. NodePorts are at the nodes' addresses, where
// only the pod far and near are: those addresses are theirs as well.
func newNetwork(t *testing.T) *fake {
	t.Helper()
	testenv.Root(t)
	f := newFake()
	f.nodes[0].Status.Addresses[0].Address = "10.79.0.11" // near's
	f.nodes[1].Status.Addresses[0].Address = "10.79.1.12" // far's
	var spaces [2]ns.NetNS
	for i := range spaces {
		spaces[i] = testenv.NewNetns(t)
		f.nodeNetns[f.nodes[i].Name] = testbed.Netns{Path: spaces[i].Path()}
	}
	up := func(device, beginning string) error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		errs := []error{netlink.LinkSetUp(lo), netlink.LinkSetMTU(link, 1400), netlink.LinkSetUp(link)}
		for i := range order {
			a, err := netlink.ParseAddr(netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("%s%d", beginning, 10+i)), 23).String())
			errs = append(errs, err, netlink.AddrAdd(link, a))
		}
		return errors.Join(errs...)
	}
	err := spaces[0].Do(func(ns.NetNS) error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b", PeerNamespace: netlink.NsFd(int(spaces[1].Fd()))}
		return errors.Join(netlink.LinkAdd(veth), up("a", "10.79.0."))
	})
	if err == nil {
		err = spaces[1].Do(func(ns.NetNS) error { return up("b", "10.79.1.") })
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// wantNothingLeft looks for what a run would leave.
func (f *fake) wantNothingLeft(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		f.mu.Lock()
		left := len(f.spaces) + len(f.pods) + len(f.services) + f.workers
		f.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left: %d namespaces, %d pods, %d services, %d workers", len(f.spaces), len(f.pods), len(f.services), f.workers)
		}
	}
}

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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/beeline-cni/beeline/internal/testenv"
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

func (f *fake) Nodes(context.Context) ([]corev1.Node, error) { return f.nodes, f.allow("nodes") }

func (f *fake) DaemonSets(_ context.Context, namespace string) ([]appsv1.DaemonSet, error) {
	return f.daemonSets, f.allow("daemonsets " + namespace)
}

func (f *fake) ConfigMap(context.Context, string, string) (map[string]string, error) {
	if err := f.allow("configmap"); err != nil {
		return nil, err
	}
	return map[string]string{"config.conf": "kind: KubeProxyConfiguration\nmode: ipvs\n"}, nil
}

func (f *fake) Namespaces(context.Context, string) (list []corev1.Namespace, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.spaces {
		list = append(list, n)
	}
	return list, f.allow("namespaces")
}

func (f *fake) HasNamespace(_ context.Context, name string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.spaces[name]
	return ok, nil
}

func (f *fake) CreateNamespace(_ context.Context, n *corev1.Namespace) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.allow("create namespace"); err != nil {
		return err
	}
	n.CreationTimestamp = metav1.Now()
	f.spaces[n.Name] = *n
	return nil
}

func (f *fake) DeleteNamespace(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck {
		return nil
	}
	if _, ok := f.spaces[name]; !ok {
		return forbidden("delete namespace") // as API servers reply without rights, whether or not the namespace exists
	}
	delete(f.spaces, name)
	clear(f.pods)
	clear(f.services)
	return nil
}

func (f *fake) Pods(_ context.Context, namespace, selector string) (list []corev1.Pod, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pods {
		if p.Namespace == namespace && (selector == everything || strings.HasSuffix(selector, p.Labels[labelRun])) {
			list = append(list, p)
		}
	}
	return list, f.allow("pods")
}

// order returns each role an address of its own.
var order = []role{podClient, podNear, podFar, nodeClient, nodeNear, nodeFar}

func (f *fake) CreatePod(_ context.Context, p *corev1.Pod) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.allow("create pod"); err != nil {
		return err
	}
	p.CreationTimestamp = metav1.Now()
	p.Status.Phase = corev1.PodRunning
	r := role(p.Labels[labelRole])
	ip := fmt.Sprintf("%s%d", f.networks[p.Spec.NodeName], 10+slices.Index(order, r))
	p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	if f.breakPod != nil {
		f.breakPod(p)
	}
	f.pods[p.Name] = *p
	return nil
}

func (f *fake) DeletePod(_ context.Context, _, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, name)
	return nil
}

func (f *fake) Services(_ context.Context, namespace, selector string) (list []corev1.Service, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.services {
		if s.Namespace == namespace {
			list = append(list, s)
		}
	}
	return list, nil
}

func (f *fake) CreateService(_ context.Context, s *corev1.Service) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.CreationTimestamp = metav1.Now()
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
	return nil
}

func (f *fake) SetServicePorts(_ context.Context, _, name string, ports []corev1.ServicePort) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.services[name]
	s.Spec.Ports = ports
	f.services[name] = s
	return nil
}

func (f *fake) DeleteService(_ context.Context, _, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.services, name)
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

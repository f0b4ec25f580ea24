package main

import (
	"fmt"
	"net/netip"
	"strings"
)

type object = map[string]any

// nodeAddress returns a node's address. The first 490 are on one link with node 0, the others behind tunnels, as in a
// cluster with many links: the kernel limits the neighbour table to 1,024 entries by default.
func nodeAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 200, byte(i / 245), byte(i%245 + 1)})
}

// link is the network of node 0's uplink, and spareAddress an unused address in it, for nodes that come and go.
const link = 23

var spareAddress = netip.AddrFrom4([4]byte{10, 200, 1, 250})

func podRange(i int) string { return fmt.Sprintf("100.%d.%d.0/24", 64+i/256, i%256) }

// podAddress is the nth address of a node's pods.
func podAddress(node, n int) string {
	base := netip.MustParsePrefix(podRange(node)).Addr().As4()
	base[3] = byte(n)
	return netip.AddrFrom4(base).String()
}

// The nth pod addresses of nodes: initial pods first, then those that come and go.
const (
	firstAddress    = 2
	churnedAddress  = 200
	churnedTogether = 50
)

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

func namespaceName(i int) string { return fmt.Sprintf("namespace-%d", i) }

// appsEach is the number of applications per namespace; each has policies and Services.
const appsEach = 5

func appName(i int) string { return fmt.Sprintf("app-%d", i) }

// placeOf returns the node and slot of the ith initial pod: pods of one node are in many namespaces.
func (o *options) place(i int) (node, nth, namespace, app int) {
	node, nth = i%o.nodes, i/o.nodes
	number := i + nth
	return node, nth, number % o.namespaces, (number/o.namespaces + nth) % appsEach
}

func uid(kind, i int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, i) }

const created = "2026-01-01T00:00:00Z"

func metadata(kind, i int, namespace, name string, labels object) object {
	m := object{"name": name, "uid": uid(kind, i), "creationTimestamp": created, "generation": 1}
	if labels != nil {
		m["labels"] = labels
	}
	if namespace != "" {
		m["namespace"] = namespace
	}
	return m
}

// The kinds, as parts of generated UIDs.
const (
	ofNamespace = iota + 1
	ofNode
	ofPod
	ofService
	ofAddress
	ofSlice
	ofPolicy
)

func namespace(i int) object {
	name := namespaceName(i)
	return object{
		"apiVersion": "v1", "kind": "Namespace", "spec": object{"finalizers": []any{"kubernetes"}}, "status": object{"phase": "Active"},
		"metadata": metadata(ofNamespace, i, "", name, object{"team": fmt.Sprint(i % 7), "kubernetes.io/metadata.name": name}),
	}
}

// node is a Node as a kubelet writes it, roughly.
func node(i int, address netip.Addr) object {
	images := []any{}
	for j := range 20 {
		images = append(images, object{"names": []any{fmt.Sprintf("registry.example/team-%d/image-%d:v1.2.3", j, j)}, "sizeBytes": 100000000 + j})
	}
	return object{
		"apiVersion": "v1", "kind": "Node", "metadata": metadata(ofNode, i, "", nodeName(i), object{"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3)}),
		"spec": object{"podCIDR": podRange(i), "podCIDRs": []any{podRange(i)}},
		"status": object{
			"addresses": []any{object{"type": "InternalIP", "address": address.String()}}, "images": images,
			"conditions": []any{object{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}},
		},
	}
}

// pod is a Pod of a Deployment of realistic size: 20 environment variables and managedFields.
func pod(i int, name string, namespace, app, node int) object {
	env := []any{}
	for j := range 20 {
		env = append(env, object{"name": fmt.Sprintf("SETTING_%d", j), "value": strings.Repeat("v", 40)})
	}
	m := metadata(ofPod, i, namespaceName(namespace), name, object{"app": appName(app), "pod-template-hash": "6d4b75cb6d", "release": "stable"})
	m["annotations"] = object{"example.org/checksum": strings.Repeat("c", 64)}
	m["managedFields"] = []any{
		managed("kube-controller-manager", "", "f:metadata", "f:generateName", "f:labels", "f:ownerReferences", "f:spec", "f:containers", "f:dnsPolicy", "f:enableServiceLinks", "f:restartPolicy", "f:schedulerName", "f:securityContext", "f:terminationGracePeriodSeconds"),
		managed("kubelet", "status", "f:status", "f:conditions", "f:containerStatuses", "f:hostIP", "f:hostIPs", "f:phase", "f:podIP", "f:podIPs", "f:startTime"),
	}
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": m,
		"spec": object{
			"nodeName": nodeName(node), "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
			"terminationGracePeriodSeconds": 30, "securityContext": object{}, "serviceAccountName": "default", "enableServiceLinks": true,
			"containers": []any{object{
				"name": "main", "image": "registry.example/team/image:v1", "env": env, "imagePullPolicy": "IfNotPresent",
				"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "resources": object{},
				"ports": []any{object{"name": "http", "containerPort": 8080, "protocol": "TCP"}, object{"name": "metrics", "containerPort": 9090, "protocol": "TCP"}},
			}},
		},
	}
}

func managed(by, sub string, fields ...string) object {
	all := object{}
	for _, f := range fields {
		all[f] = object{".": object{}, "f:" + strings.Repeat("x", 12): object{}}
	}
	m := object{"manager": by, "operation": "Update", "apiVersion": "v1", "time": created, "fieldsType": "FieldsV1", "fieldsV1": all}
	if sub != "" {
		m["subresource"] = sub
	}
	return m
}

func podName(app, i int) string { return fmt.Sprintf("%s-6d4b75cb6d-%06d", appName(app), i) }

// podStatus is what the kubelet writes once the pod runs.
func podStatus(address, host string, ready bool) object {
	isReady := "False"
	if ready {
		isReady = "True"
	}
	return object{"status": object{
		"phase": "Running", "podIP": address, "podIPs": []any{object{"ip": address}}, "hostIP": host, "startTime": created, "qosClass": "BestEffort",
		"conditions": []any{
			object{"type": "Ready", "status": isReady, "lastTransitionTime": created}, object{"type": "Initialized", "status": "True", "lastTransitionTime": created},
			object{"type": "ContainersReady", "status": isReady, "lastTransitionTime": created}, object{"type": "PodScheduled", "status": "True", "lastTransitionTime": created},
		},
	}}
}

// serviceAddress returns a Service's address, in the API server's range.
func serviceAddress(i int) string {
	return netip.AddrFrom4([4]byte{10, 96 + byte(i/50000), byte(i/200%250 + 1), byte(i%200 + 1)}).String()
}

func serviceName(i int) string { return fmt.Sprintf("service-%d", i) }

func service(i, namespace, app int) object {
	return object{
		"apiVersion": "v1", "kind": "Service", "metadata": metadata(ofService, i, namespaceName(namespace), serviceName(i), nil),
		"spec": object{
			"selector": object{"app": appName(app)}, "type": "ClusterIP", "clusterIP": serviceAddress(i), "clusterIPs": []any{serviceAddress(i)},
			"ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
			"ports": []any{object{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}},
		},
	}
}

// address is the API server's allocation of a cluster IP.
func address(i, namespace int) object {
	return object{
		"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
		"metadata": metadata(ofAddress, i, "", serviceAddress(i), object{"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}),
		"spec":     object{"parentRef": object{"resource": "services", "namespace": namespaceName(namespace), "name": serviceName(i)}},
	}
}

func sliceName(i int) string { return serviceName(i) + "-x" }

// endpoint is one of an EndpointSlice, as its controller writes it.
func endpoint(address string, node int, pod, namespace string) object {
	return object{
		"addresses": []any{address}, "nodeName": nodeName(node), "zone": fmt.Sprintf("zone-%d", node%3),
		"conditions": object{"ready": true, "serving": true, "terminating": false},
		"targetRef":  object{"kind": "Pod", "namespace": namespace, "name": pod, "uid": uid(ofPod, node)},
	}
}

// endpoints are those of the ith Service, of consecutive initial pods.
func (o *options) endpoints(i int) []any {
	var all []any
	for j := range o.endpointsEach {
		pod := (i*o.endpointsEach + j) % o.pods
		node, nth, namespace, app := o.place(pod)
		all = append(all, endpoint(podAddress(node, firstAddress+nth), node, podName(app, pod), namespaceName(namespace)))
	}
	return all
}

func slice(i, namespace int, endpoints []any) object {
	return object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
		"metadata": metadata(ofSlice, i, namespaceName(namespace), sliceName(i), object{"kubernetes.io/service-name": serviceName(i), "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}),
		"ports":    []any{object{"name": "http", "port": 8080, "protocol": "TCP"}},
	}
}

// policy returns policies of typical kinds: default deny of ingress, allowed clients of an application, another team,
// the resolver and an external network.
func policy(i, namespace int) object {
	app := func(i int) object { return object{"matchLabels": object{"app": appName(i % appsEach)}} }
	spec := object{"podSelector": app(i), "policyTypes": []any{"Ingress"}}
	switch i % 5 {
	case 0:
		spec = object{"podSelector": object{}, "policyTypes": []any{"Ingress", "Egress"}}
	case 1:
		spec["ingress"] = []any{object{"from": []any{object{"podSelector": app(i + 1)}, object{"podSelector": app(i + 2)}}, "ports": []any{object{"port": "http", "protocol": "TCP"}}}}
	case 2:
		spec["ingress"] = []any{object{"from": []any{object{"namespaceSelector": object{"matchLabels": object{"team": fmt.Sprint(i % 7)}}, "podSelector": app(i)}}, "ports": []any{object{"port": 9000, "endPort": 9100, "protocol": "TCP"}}}}
	case 3:
		spec["ingress"] = []any{object{"from": []any{object{"podSelector": object{"matchLabels": object{probeLabel: "yes"}}, "namespaceSelector": object{}}}}}
	case 4:
		spec = object{"podSelector": object{}, "policyTypes": []any{"Egress"}, "egress": []any{
			object{"to": []any{object{"namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": "kube-system"}}}}, "ports": []any{object{"port": 53, "protocol": "UDP"}}},
			object{"to": []any{object{"ipBlock": object{"cidr": fmt.Sprintf("192.0.2.%d/32", i%256)}}, object{"podSelector": object{}}}},
		}}
	}
	return object{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec,
		"metadata": metadata(ofPolicy, i, namespaceName(namespace), fmt.Sprintf("policy-%d", i), nil),
	}
}

// probeLabel is selected by policies of every namespace; it is set on pods to time label changes.
const probeLabel = "probe"

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
)

// How many there are of what is not counted by an option: a pod in a hundred is behind a Service of its own.
const (
	namespaces = 100
	services   = 300
	policies   = 100
)

type object = map[string]any

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// nodeAddress and podRange give each node its own; all nodes are on one link.
func nodeAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 200, byte(i / 250), byte(i%250 + 1)})
}

func podRange(i int) string { return fmt.Sprintf("100.%d.%d.0/24", 64+i/256, i%256) }

func namespaceName(i int) string { return fmt.Sprintf("namespace-%d", i%namespaces) }

func metadata(namespace, name string, labels object) object {
	m := object{"name": name, "labels": labels}
	if namespace != "" {
		m["namespace"] = namespace
	}
	return m
}

// node is a Node with what a kubelet writes there, roughly.
func node(i int) object {
	images := []any{}
	for j := range 20 {
		images = append(images, object{"names": []any{fmt.Sprintf("registry.example/team-%d/image-%d:v1.2.3", j, j)}, "sizeBytes": 100000000 + j})
	}
	return object{
		"apiVersion": "v1", "kind": "Node", "metadata": metadata("", nodeName(i), object{"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3)}),
		"spec": object{"podCIDR": podRange(i), "podCIDRs": []any{podRange(i)}},
		"status": object{
			"addresses": []any{object{"type": "InternalIP", "address": nodeAddress(i).String()}}, "images": images,
			"conditions": []any{object{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}},
		},
	}
}

// pod is a Pod of a Deployment, with what a real one carries, roughly.
func pod(i, nodes int) object {
	at := i % nodes
	app := fmt.Sprintf("app-%d", i%1000)
	env := []any{}
	for j := range 20 {
		env = append(env, object{"name": fmt.Sprintf("SETTING_%d", j), "value": strings.Repeat("v", 40)})
	}
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"namespace": namespaceName(i), "name": podName(i), "labels": object{"app": app, "pod-template-hash": "6d4b75cb6d", "release": "stable"},
			"annotations": object{"example.org/checksum": strings.Repeat("c", 64)},
		},
		"spec": object{"nodeName": nodeName(at), "containers": []any{object{
			"name": "main", "image": "registry.example/team/image:v1", "env": env,
			"ports": []any{object{"name": "http", "containerPort": 8080}, object{"name": "metrics", "containerPort": 9090}},
		}}},
	}
}

func podName(i int) string { return fmt.Sprintf("app-%d-6d4b75cb6d-%05d", i%1000, i) }

// podStatus is what the kubelet writes once the pod runs.
func podStatus(i, nodes int) object {
	at := i % nodes
	base := netip.MustParsePrefix(podRange(at)).Addr().As4()
	base[3] = byte(i/nodes%250 + 2)
	address := netip.AddrFrom4(base).String()
	return object{"status": object{
		"phase": "Running", "podIP": address, "podIPs": []any{object{"ip": address}}, "hostIP": nodeAddress(at).String(),
		"conditions": []any{object{"type": "Ready", "status": "True"}, object{"type": "Initialized", "status": "True"}},
	}}
}

func service(i int) object {
	return object{
		"apiVersion": "v1", "kind": "Service", "metadata": metadata(namespaceName(i), fmt.Sprintf("service-%d", i), nil),
		"spec": object{"selector": object{"app": fmt.Sprintf("app-%d", i)}, "ports": []any{object{"name": "http", "port": 80, "targetPort": "http"}}},
	}
}

func slice(i, nodes int) object {
	endpoints := []any{}
	for j := range 30 {
		at := (i + j) % nodes
		base := netip.MustParsePrefix(podRange(at)).Addr().As4()
		base[3] = 2
		endpoints = append(endpoints, object{"addresses": []any{netip.AddrFrom4(base).String()}, "nodeName": nodeName(at), "conditions": object{"ready": true}})
	}
	return object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
		"metadata": metadata(namespaceName(i), fmt.Sprintf("service-%d-x", i), object{"kubernetes.io/service-name": fmt.Sprintf("service-%d", i)}),
		"ports":    []any{object{"name": "http", "port": 8080, "protocol": "TCP"}},
	}
}

func policy(i int) object {
	return object{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(namespaceName(i), "from-friends", nil),
		"spec": object{
			"podSelector": object{"matchLabels": object{"app": fmt.Sprintf("app-%d", i)}},
			"ingress":     []any{object{"from": []any{object{"namespaceSelector": object{}}}, "ports": []any{object{"port": "http"}}}},
		},
	}
}

// fill makes all objects.
func (s *server) fill(ctx context.Context, o options) error {
	var jobs []func() error
	post := func(path string, body object) {
		jobs = append(jobs, func() error { return s.send(ctx, http.MethodPost, path, body) })
	}
	for i := range namespaces {
		post("/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata("", namespaceName(i), object{"team": fmt.Sprint(i % 7)})})
	}
	if err := inParallel(jobs); err != nil {
		return err
	}
	jobs = nil
	for i := range o.nodes {
		post("/api/v1/nodes", node(i))
	}
	for i := range services {
		post("/api/v1/namespaces/"+namespaceName(i)+"/services", service(i))
		post("/apis/discovery.k8s.io/v1/namespaces/"+namespaceName(i)+"/endpointslices", slice(i, o.nodes))
	}
	for i := range policies {
		post("/apis/networking.k8s.io/v1/namespaces/"+namespaceName(i)+"/networkpolicies", policy(i))
	}
	for i := range o.pods {
		jobs = append(jobs, func() error {
			path := "/api/v1/namespaces/" + namespaceName(i) + "/pods"
			if err := s.send(ctx, http.MethodPost, path, pod(i, o.nodes)); err != nil {
				return err
			}
			return s.send(ctx, http.MethodPatch, path+"/"+podName(i)+"/status", podStatus(i, o.nodes))
		})
	}
	return inParallel(jobs)
}

// inParallel does all jobs, some at once, and gives the first error.
func inParallel(jobs []func() error) error {
	queue := make(chan func() error)
	var workers sync.WaitGroup
	var once sync.Once
	var first error
	for range 16 {
		workers.Go(func() {
			for job := range queue {
				if err := job(); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	for _, job := range jobs {
		queue <- job
	}
	close(queue)
	workers.Wait()
	return first
}

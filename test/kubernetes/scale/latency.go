package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"         //nolint:depguard // observes the agent's maps from outside
	"github.com/vishvananda/netlink" //nolint:depguard // observes the kernel's routes from outside
)

// pause between changes of one kind.
const pause = 300 * time.Millisecond

// patience is the timeout of a change.
const patience = 20 * time.Second

// table is one of the datapath's maps.
func (a *agent) table(name string) (*ebpf.Map, error) {
	paths, err := filepath.Glob(filepath.Join(a.o.node.BPFFS, "maps", name+"*"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no map %s: %w", name, err)
	}
	for _, path := range paths {
		if of := filepath.Base(path); of == name || strings.HasPrefix(of, name+"@") || strings.HasPrefix(of, name+"-") {
			return ebpf.LoadPinnedMap(path, nil)
		}
	}
	return nil, fmt.Errorf("no map %s among %v", name, paths)
}

// entries returns the state for timeEach: the value of a map's entry as text, empty if there is none.
func (a *agent) entries(table string, key func(n int) []byte) func(n int) (string, error) {
	m, err := a.table(table)
	return func(n int) (string, error) {
		if err != nil {
			return "", err
		}
		value, err := m.LookupBytes(key(n))
		return string(value), err
	}
}

// addressKey is an address as a map key.
func addressKey(address string) []byte {
	b := netip.MustParseAddr(address).As16()
	return b[:]
}

// timeEach makes changes one by one and times each until the state is another.
func (a *agent) timeEach(state func(n int) (string, error), change func(n int) error) (all []time.Duration, err error) {
	for n := range a.o.changes {
		before, err := state(n)
		if err != nil {
			return nil, err
		}
		if err := change(n); err != nil {
			return nil, err
		}
		begin := time.Now()
		for now := before; now == before; {
			if now, err = state(n); err != nil {
				return nil, err
			}
			if time.Since(begin) > patience {
				return nil, fmt.Errorf("change %d is not seen after %s: the state is %x", n, patience, now)
			}
			time.Sleep(time.Millisecond)
		}
		all = append(all, time.Since(begin))
		time.Sleep(pause)
	}
	return all, nil
}

// comeAndGo creates an object and deletes it in turn.
func (a *agent) comeAndGo(ctx context.Context, path, name string, made object) func(n int) error {
	return func(n int) error {
		if n%2 == 0 {
			return a.server.send(ctx, http.MethodPost, path, made)
		}
		return a.server.send(ctx, http.MethodDelete, path+"/"+name, nil)
	}
}

// timeLabels adds and removes a label of remote pods that policies of all local pods select.
func (a *agent) timeLabels(ctx context.Context) ([]time.Duration, error) {
	pod := func(n int) int { return 1 + n/2 } // never of node 0
	key := func(n int) []byte {
		node, nth, _, _ := a.o.place(pod(n))
		return addressKey(podAddress(node, firstAddress+nth))
	}
	return a.timeEach(a.entries("identities", key), func(n int) error {
		_, _, namespace, app := a.o.place(pod(n))
		var label any = "yes"
		if n%2 == 1 {
			label = nil
		}
		return a.server.send(ctx, http.MethodPatch, podPath(namespace)+"/"+podName(app, pod(n)), object{"metadata": object{"labels": object{probeLabel: label}}})
	})
}

// timePolicies creates and deletes a policy that selects a local pod.
func (a *agent) timePolicies(ctx context.Context, local *sandbox) ([]time.Duration, error) {
	path := "/apis/networking.k8s.io/v1/namespaces/" + local.namespace + "/networkpolicies"
	made := object{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": object{"name": "timed"},
		"spec": object{"podSelector": object{}, "ingress": []any{object{"from": []any{object{"podSelector": object{}}}}}},
	}
	state := a.entries("policy_pods", func(int) []byte { return addressKey(local.Addresses[0].String()) })
	return a.timeEach(state, a.comeAndGo(ctx, path, "timed", made))
}

// timeServices creates and deletes a Service.
func (a *agent) timeServices(ctx context.Context) ([]time.Duration, error) {
	const number = 80
	i := a.o.services // has no Service yet
	key := binary.BigEndian.AppendUint16(addressKey(serviceAddress(i)), number)
	key = append(key, 6, 0) // TCP, padding
	made := service(i, 0, 0)
	delete(made["metadata"].(object), "uid")
	path := "/api/v1/namespaces/" + namespaceName(0) + "/services"
	return a.timeEach(a.entries("services", func(int) []byte { return key }), a.comeAndGo(ctx, path, serviceName(i), made))
}

// timeNodes creates and deletes a node, until the kernel has or loses the route to its pods, which the agent writes after the
// datapath's table.
func (a *agent) timeNodes(ctx context.Context) (all []time.Duration, err error) {
	n := a.o.nodes
	pod := net.ParseIP(podAddress(n, firstAddress))
	err = a.o.node.Netlink(func(h *netlink.Handle) error {
		route := func(int) (string, error) {
			routes, err := h.RouteGet(pod)
			return fmt.Sprint(routes, err), nil // an error is the state without a route
		}
		all, err = a.timeEach(route, a.comeAndGo(ctx, "/api/v1/nodes", nodeName(n), node(n, spareAddress)))
		return err
	})
	return all, err
}

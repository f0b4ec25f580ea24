package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf" //nolint:depguard // observes the agent's maps from outside
)

// pause between changes of one kind.
const pause = 300 * time.Millisecond

// patience is the timeout of a change.
const patience = 20 * time.Second

// table is one of the datapath's maps.
func (a *agent) table(name string) (*ebpf.Map, error) {
	paths, err := filepath.Glob(filepath.Join(a.o.dir, "bpf/beeline/maps", name+"*"))
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

// watchEntry returns a function that waits until the entry of a map changes.
func watchEntry(m *ebpf.Map, key []byte) (wait func(since time.Time) (time.Duration, error), err error) {
	before, err := entry(m, key)
	if err != nil {
		return nil, err
	}
	return func(since time.Time) (time.Duration, error) {
		for {
			now, err := entry(m, key)
			took := time.Since(since)
			if err != nil || now != before {
				return took, err
			}
			if took > patience {
				return took, fmt.Errorf("%s: nothing has changed for %x after %s", m, key, patience)
			}
			time.Sleep(time.Millisecond)
		}
	}, nil
}

// entry returns a value as text; empty if there is none.
func entry(m *ebpf.Map, key []byte) (string, error) {
	value, err := m.LookupBytes(key)
	return string(value), err
}

// addressKey is an address as a map key.
func addressKey(address string) []byte {
	b := netip.MustParseAddr(address).As16()
	return b[:]
}

// timeEach makes changes one by one and times each until the entry of a map changes.
func (a *agent) timeEach(table string, key func(n int) []byte, change func(n int) error) (all []time.Duration, err error) {
	m, err := a.table(table)
	if err != nil {
		return nil, err
	}
	for n := range a.o.changes {
		wait, err := watchEntry(m, key(n))
		if err != nil {
			return nil, err
		}
		if err := change(n); err != nil {
			return nil, err
		}
		took, err := wait(time.Now())
		if err != nil {
			return nil, err
		}
		all = append(all, took)
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
	return a.timeEach("identities", key, func(n int) error {
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
	return a.timeEach("policy_pods", func(int) []byte { return addressKey(local.address.String()) }, a.comeAndGo(ctx, path, "timed", made))
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
	return a.timeEach("services", func(int) []byte { return key }, a.comeAndGo(ctx, path, serviceName(i), made))
}

// timeNodes creates nodes one by one and times each until the kernel has its route, which the agent writes last.
func (a *agent) timeNodes(ctx context.Context) (all []time.Duration, err error) {
	routes, err := followRoutes(ctx)
	if err != nil {
		return nil, err
	}
	for i := range a.o.changes {
		n := a.o.nodes + i
		if err := a.server.send(ctx, http.MethodPost, "/api/v1/nodes", node(n, spareAddress)); err != nil {
			return nil, err
		}
		begin := time.Now()
		at, err := waitRoute(routes, podRange(n))
		if err != nil {
			return nil, err
		}
		all = append(all, max(0, at.Sub(begin)))
		if err := a.server.send(ctx, http.MethodDelete, "/api/v1/nodes/"+nodeName(n), nil); err != nil {
			return nil, err
		}
		if _, err := waitRoute(routes, podRange(n)); err != nil { // wait until the address is free
			return nil, err
		}
		time.Sleep(pause)
	}
	return all, nil
}

// followRoutes reports each route that the kernel gets or loses, with the time. The agent writes the datapath's table first.
func followRoutes(ctx context.Context) (<-chan routeEvent, error) {
	cmd := exec.CommandContext(ctx, "ip", "-4", "monitor", "route")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	events := make(chan routeEvent, 10000)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			for _, field := range strings.Fields(lines.Text()) {
				if strings.Contains(field, "/") {
					events <- routeEvent{field, time.Now()}
					break
				}
			}
		}
	}()
	time.Sleep(200 * time.Millisecond) // it is listening by then
	return events, nil
}

type routeEvent struct {
	to string
	at time.Time
}

func waitRoute(routes <-chan routeEvent, to string) (time.Time, error) {
	late := time.After(patience)
	for {
		select {
		case r := <-routes:
			if r.to == to {
				return r.at, nil
			}
		case <-late:
			return time.Time{}, errors.New("nothing has become of the route to " + to + " after " + patience.String())
		}
	}
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// churn starts and deletes pods, in the whole cluster and on the measured node.
type churn struct {
	a *agent

	starts atomic.Int64
	all    sync.WaitGroup

	mu      sync.Mutex
	adds    []time.Duration
	failure error
}

// lives is the lifetime of a pod of the churn.
const lives = 10 * time.Second

// run starts pods at their rate until ctx ends, and waits for their deletion.
func (c *churn) run(ctx context.Context) error {
	background := context.WithoutCancel(ctx)
	ticker := time.NewTicker(time.Duration(float64(time.Second) / c.a.o.starts))
	defer ticker.Stop()
	begin, local := time.Now(), 0
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			c.all.Wait()
			return c.failure
		case <-ticker.C:
		}
		life := c.remote
		if float64(local) < time.Since(begin).Seconds()*c.a.o.adds {
			life = c.local
			local++
		}
		c.all.Go(func() {
			if err := life(background, i); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.failure = err
			}
		})
	}
}

func podPath(namespace int) string { return "/api/v1/namespaces/" + namespaceName(namespace) + "/pods" }

// remote is the lifecycle of a pod of another node, as written by its controllers and kubelet. It is an endpoint of a
// Service.
func (c *churn) remote(ctx context.Context, i int) error {
	o, s := c.a.o, c.a.server
	node, namespace, app := 1+i%(o.nodes-1), i%o.namespaces, i%appsEach
	address := podAddress(node, churnedAddress+i/(o.nodes-1)%churnedTogether)
	name := fmt.Sprintf("%s-churn-%d", appName(app), i)
	path := podPath(namespace)
	if err := s.send(ctx, http.MethodPost, path, pod(1<<24+i, name, namespace, app, node)); err != nil {
		return err
	}
	for _, ready := range []bool{false, true} {
		if err := s.send(ctx, http.MethodPatch, path+"/"+name+"/status", podStatus(address, nodeAddress(node).String(), ready)); err != nil {
			return err
		}
	}
	c.starts.Add(1)
	service := i % o.services
	slice := "/apis/discovery.k8s.io/v1/namespaces/" + namespaceName(service%o.namespaces) + "/endpointslices/" + sliceName(service)
	endpoints := o.endpoints(service)
	if err := s.send(ctx, http.MethodPatch, slice, object{"endpoints": append(slices.Clone(endpoints), endpoint(address, node, name, namespaceName(namespace)))}); err != nil {
		return err
	}
	time.Sleep(lives)
	if err := s.send(ctx, http.MethodPatch, slice, object{"endpoints": endpoints}); err != nil {
		return err
	}
	return s.send(ctx, http.MethodDelete, path+"/"+name, object{"gracePeriodSeconds": 0})
}

// local is the lifecycle of a pod of the measured node. Policies of its namespace select it.
func (c *churn) local(ctx context.Context, i int) error {
	o, s := c.a.o, c.a.server
	namespace, app := i%o.namespaces, i%appsEach
	name := fmt.Sprintf("%s-local-%d", appName(app), i)
	path := podPath(namespace)
	answer, err := s.ask(ctx, http.MethodPost, path, pod(1<<24+i, name, namespace, app, 0))
	if err != nil {
		return err
	}
	var made struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(answer, &made); err != nil {
		return err
	}
	at, err := c.a.add(ctx, fmt.Sprintf("churn-%d", i), namespaceName(namespace), name, made.Metadata.UID)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.adds = append(c.adds, at.took)
	c.mu.Unlock()
	for _, ready := range []bool{false, true} {
		if err := s.send(ctx, http.MethodPatch, path+"/"+name+"/status", podStatus(at.Addresses[0].String(), nodeAddress(0).String(), ready)); err != nil {
			return err
		}
	}
	c.starts.Add(1)
	time.Sleep(lives)
	if err := c.a.del(ctx, at); err != nil {
		return err
	}
	return s.send(ctx, http.MethodDelete, path+"/"+name, object{"gracePeriodSeconds": 0})
}

package ippools

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/agent/poddevice"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device"
)

// Device gives what a pod and its IPPool, the first of several, say about its device.
func (p *Pools) Device(ctx context.Context, req agentapi.PrepareRequest) (poddevice.Pod, error) {
	pools, pod, err := p.choose(ctx, req.Pod, req.IPPool, true)
	if err != nil {
		return poddevice.Pod{}, err
	}
	if pod == nil {
		return poddevice.Pod{Unknown: true}, nil
	}
	of := poddevice.Pod{Annotation: device.Kind(pod.Device), RuntimeClass: pod.RuntimeClass}
	if len(pools) > 0 {
		of.Pool, of.OfPool = pools[0].Name, device.Kind(pools[0].Device)
	}
	return of, nil
}

// askPatience is how long an ADD waits for the API server where its answer decides only about the device.
const askPatience = time.Second

// pod gives a pod as the snapshot has it, or else as the server has it now. A pod that no API object describes is known by
// its namespace and name only. Without IPPools a pod that the server does not give is nil, and no error.
func (p *Pools) pod(ctx context.Context, s *cluster.Snapshot, ref agentapi.PodRef, ask bool) (*cluster.Pod, error) {
	key, uid := cluster.Key{Namespace: ref.Namespace, Name: ref.Name}, cluster.NewUID(ref.UID)
	if pod, found := s.Pods.Find(key); found && (ref.UID == "" || pod.UID == uid) {
		return pod, nil
	}
	if p.Server == nil || ref.Name == "" || !ref.MadeByServer() {
		return &cluster.Pod{Namespace: ref.Namespace, Name: ref.Name}, nil
	}
	if pod := p.pods.get(ref.UID); pod != nil {
		return pod, nil
	}
	if len(s.IPPools) == 0 {
		if s.Incomplete || !ask {
			return nil, nil // incomplete: the server is away
		}
		short, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		if pod, err := p.ask(short, key, ref.UID); err == nil {
			return pod, nil
		}
		return nil, ctx.Err()
	}
	return p.ask(ctx, key, ref.UID)
}

// ask reads a pod from the server.
func (p *Pools) ask(ctx context.Context, key cluster.Key, uid string) (*cluster.Pod, error) {
	pod, err := p.Server.Pod(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("choose an IPPool: %w", err)
	}
	if pod == nil || pod.UID != cluster.NewUID(uid) {
		return nil, agentapi.Errorf(agentapi.CodeNotReady, "the API server has no pod %s with UID %s", key, uid)
	}
	p.pods.put(uid, pod)
	return pod, nil
}

// The bounds of the podCache: ADDs in progress, and the time from the first question of an ADD to the last.
const (
	podsMax = 256
	podTime = 15 * time.Second
)

// podCache keeps pods by UID from the choice of their device to that of their addresses, so that an ADD reads its pod
// once. Old entries go when there are many.
type podCache struct {
	mu  sync.Mutex
	all map[string]cachedPod
}

type cachedPod struct {
	*cluster.Pod
	read time.Time
}

func (c *podCache) get(uid string) *cluster.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.all[uid]; time.Since(of.read) < podTime {
		return of.Pod
	}
	return nil
}

func (c *podCache) put(uid string, pod *cluster.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || len(c.all) >= podsMax {
		c.all = map[string]cachedPod{}
	}
	c.all[uid] = cachedPod{pod, time.Now()}
}

func (c *podCache) forget(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, uid)
}

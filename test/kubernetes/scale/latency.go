package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/apiserver"
)

// pause between changes, so that each is on its own.
const pause = 50 * time.Millisecond

// timeNodes makes nodes one by one and times each from the server's answer until the kernel has its route.
func timeNodes(ctx context.Context, o options, s *server, routes <-chan routeEvent) ([]time.Duration, error) {
	var all []time.Duration
	for i := range o.changes {
		n := o.nodes + i
		if err := s.send(ctx, http.MethodPost, "/api/v1/nodes", node(n)); err != nil {
			return nil, err
		}
		answered := time.Now()
		took, err := waitRoute(routes, podRange(n), answered)
		if err != nil {
			return nil, err
		}
		all = append(all, took)
		// The cluster is to stay as large as it is; and kernels by default know no more than 1,024 neighbours.
		if err := s.send(ctx, http.MethodDelete, "/api/v1/nodes/"+nodeName(n), nil); err != nil {
			return nil, err
		}
		time.Sleep(pause)
	}
	return all, nil
}

// waitRoute waits for a route. It may have been there before the server's answer was read: that is no time at all.
func waitRoute(routes <-chan routeEvent, to string, since time.Time) (time.Duration, error) {
	late := time.After(10 * time.Second)
	for {
		select {
		case r := <-routes:
			if r.to == to {
				return max(0, r.at.Sub(since)), nil
			}
		case <-late:
			return 0, fmt.Errorf("no route to %s after 10 s", to)
		}
	}
}

// timePods changes pods one by one and times each from the server's answer until the source delivers it. A Source of
// its own is timed, in this process, which is the one that the agent has: the agent makes no use of pods that could be seen from outside.
func timePods(ctx context.Context, o options, s *server) ([]time.Duration, error) {
	source, _, err := apiserver.New(apiserver.Config{Kubeconfig: s.kubeconfig, NodeName: nodeName(0)}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type delivery struct {
		snapshot *cluster.Snapshot
		at       time.Time
	}
	deliveries := make(chan delivery, 1000)
	go func() {
		_ = source.Run(ctx, func(s *cluster.Snapshot) { deliveries <- delivery{s, time.Now()} })
	}()
	for d := range deliveries {
		if len(d.snapshot.Pods) == o.pods && len(d.snapshot.Unknown) == 0 {
			break
		}
	}
	var all []time.Duration
	for i := range o.changes {
		key := cluster.Key{Namespace: namespaceName(i), Name: podName(i)}
		label := fmt.Sprintf("change-%d", i)
		path := "/api/v1/namespaces/" + key.Namespace + "/pods/" + key.Name
		if err := s.send(ctx, http.MethodPatch, path, object{"metadata": object{"labels": object{"change": label}}}); err != nil {
			return nil, err
		}
		answered := time.Now()
		late := time.After(10 * time.Second)
		for found := false; !found; {
			select {
			case d := <-deliveries:
				at, there := slices.BinarySearchFunc(d.snapshot.Pods, key, func(p *cluster.Pod, k cluster.Key) int { return p.Key().Compare(k) })
				if there {
					got, _ := d.snapshot.Pods[at].Labels.Get("change")
					if found = got == label; found {
						all = append(all, max(0, d.at.Sub(answered)))
					}
				}
			case <-late:
				return nil, fmt.Errorf("pod %s did not change in 10 s", key)
			}
		}
		time.Sleep(pause)
	}
	return all, nil
}

// print prints quantiles.
func print(what string, all []time.Duration) {
	slices.Sort(all)
	at := func(q float64) time.Duration {
		return all[min(len(all)-1, int(q*float64(len(all))))].Round(100 * time.Microsecond)
	}
	fmt.Printf("%s: p50 %s, p99 %s, slowest %s (%d times)\n", what, at(.5), at(.99), all[len(all)-1].Round(100*time.Microsecond), len(all))
}

// printHistogram prints how long the agent itself says that changes took, between two looks.
func printHistogram(before, after map[string]float64) {
	const name = "beeline_cluster_change_duration_seconds"
	grown := func(key string) float64 { return after[key] - before[key] }
	total := grown(name + "_count")
	var parts []string
	for _, bound := range []string{"0.025", "0.05", "0.1", "0.2"} {
		parts = append(parts, fmt.Sprintf("%.1f %% within %s s", 100*grown(fmt.Sprintf(`%s_bucket{le="%s"}`, name, bound))/max(1, total), bound))
	}
	fmt.Printf("the agent's own count of %.0f changes: %s\n", total, strings.Join(parts, ", "))
}

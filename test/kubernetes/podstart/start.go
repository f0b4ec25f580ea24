package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/test/kubernetes/config"
	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
)

// starts has the start times of pods.
type starts struct {
	// each is sorted.
	each []time.Duration
	// all is the time from the first pod's creation until all run.
	all time.Duration
}

// quantile returns a quantile of the start times.
func (s starts) quantile(share float64) time.Duration {
	return s.each[max(0, int(math.Ceil(share*float64(len(s.each))))-1)]
}

const label = "podstart"

// startPods creates count pods, alternating between the nodes, waits until all run, and deletes them. It times events of
// a watch, because the API's timestamps are whole seconds.
func startPods(ctx context.Context, cluster *testbed.Testbed, count int) (s starts, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	watch := cluster.Command(ctx, "kubectl", "get", "pods", "--watch", "--output-watch-events", "-l", label, "-o", "json")
	stream, err := watch.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err := watch.Start(); err != nil {
		return s, err
	}
	defer func() {
		cancel()
		_ = watch.Wait() // killed by cancel
	}()
	create := cluster.Command(ctx, "kubectl", "create", "-f", "-")
	create.Stdin = strings.NewReader(manifest(cluster, count))
	created := make(chan error, 1)
	begin := time.Now()
	go func() {
		said, err := create.CombinedOutput()
		if err != nil {
			cancel() // ends the watch
			err = fmt.Errorf("create pods: %w: %s", err, said)
		}
		created <- err
	}()
	s, watchErr := awaitRunning(json.NewDecoder(bufio.NewReader(stream)), count)
	if err := <-created; err != nil {
		return s, err
	}
	if watchErr != nil {
		return s, fmt.Errorf("wait for pods: %w", watchErr)
	}
	s.all = time.Since(begin)
	_, err = cluster.Kubectl(ctx, "delete", "pods", "-l", label, "--timeout=180s")
	return s, err
}

// awaitRunning reads events until count pods run.
func awaitRunning(events *json.Decoder, count int) (s starts, err error) {
	added, running := map[string]time.Time{}, map[string]bool{}
	for len(running) < count {
		var event struct{ Object corev1.Pod }
		if err := events.Decode(&event); err != nil {
			return s, err
		}
		name, now := event.Object.Name, time.Now()
		if added[name].IsZero() {
			added[name] = now
		}
		if event.Object.Status.Phase == corev1.PodRunning && !running[name] {
			running[name] = true
			s.each = append(s.each, now.Sub(added[name]))
		}
	}
	slices.Sort(s.each)
	return s, nil
}

// pod is the manifest of a pod, without its name, node and image.
const pod = `---
apiVersion: v1
kind: Pod
metadata: {name: podstart-%03d, labels: {podstart: "yes"}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 0
  containers: [{name: pause, image: %s, imagePullPolicy: Never}]
`

// manifest describes pods, alternating between the nodes.
func manifest(cluster *testbed.Testbed, count int) (text string) {
	nodes := cluster.Cluster.Nodes
	for i := range count {
		text += fmt.Sprintf(pod, i, nodes[i%len(nodes)].Name, config.PauseImage)
	}
	return text
}

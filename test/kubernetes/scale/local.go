package main

import (
	"context"
	"fmt"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/plugin"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// sandbox is the network of a pod on the measured node.
type sandbox struct {
	*testbed.Pod
	conf *libcni.RuntimeConf
	// namespace is the pod's in Kubernetes.
	namespace string
	// took is the time of the plugin's ADD.
	took time.Duration
}

// add makes a network namespace, calls the plugin as a runtime does, and makes the pod send a packet that its policies
// deny: the agent reports it, and from then on keeps the names of all pods and Services.
func (a *agent) add(ctx context.Context, netns, namespace, name, uid string) (*sandbox, error) {
	pod, err := a.o.lab.NewPodNetns(ctx, a.o.node, netns)
	if err != nil {
		return nil, err
	}
	s := &sandbox{Pod: pod, conf: plugin.RuntimeConf(pod, namespace, name, [2]string{"K8S_POD_UID", uid}), namespace: namespace}
	begin := time.Now()
	if _, err := a.network.Add(ctx, pod, s.conf); err != nil {
		return nil, err
	}
	s.took = time.Since(begin)
	return s, pod.Do(func() error {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		return unix.Sendto(socket, []byte("?"), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{198, 51, 100, 1}})
	})
}

func (a *agent) del(ctx context.Context, s *sandbox) error {
	if err := a.network.Delete(ctx, s.conf); err != nil {
		return err
	}
	return a.o.lab.DeletePod(ctx, s.Pod)
}

// addLocals adds the network of node 0's initial pods.
func (a *agent) addLocals(ctx context.Context) (all []*sandbox, err error) {
	for i := 0; i < a.o.pods; i += a.o.nodes {
		_, _, namespace, app := a.o.place(i)
		s, err := a.add(ctx, fmt.Sprintf("local-%d", i), namespaceName(namespace), podName(app, i), uid(ofPod, i))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

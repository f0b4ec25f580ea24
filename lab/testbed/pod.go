package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/lab/file"
)

// podsDir holds one file for each pod of a node.
func podsDir(n *Node) string { return filepath.Join(n.StateDir, "pods") }

func podFile(n *Node, name string) string { return filepath.Join(podsDir(n), name+".json") }

// NewPodNetns makes the namespace and the cgroup of a pod; its network is the caller's to make, who then
// keeps what came of it with SavePod. A pod with that name on any node of the lab is an error.
func (l *Lab) NewPodNetns(ctx context.Context, n *Node, name string) (_ *Pod, err error) {
	if !labName.MatchString(name) {
		return nil, fmt.Errorf("pod %q: want up to 30 lower-case letters, digits and inner dashes", name)
	}
	if _, taken := l.NodeNamed(name); taken {
		return nil, fmt.Errorf("pod %q: a node has that name", name)
	}
	unlock, err := lockReady(ctx, l.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, node := range l.nodes {
		if _, err := os.Stat(podFile(node, name)); err == nil {
			return nil, fmt.Errorf("pod %q is on node %s already", name, node.Name)
		}
	}
	pod := &Pod{
		Name: name, Node: n.Name,
		Netns: Netns{Path: podNetns(l.Name, n.Name, name), Cgroup: filepath.Join(n.Cgroup, "pod-"+name)},
	}
	if err := l.SavePod(pod); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.removePod(context.WithoutCancel(ctx), n, pod))
		}
	}()
	if err := os.MkdirAll(pod.Cgroup, 0o755); err != nil {
		return nil, err
	}
	if err := l.makeNetns(pod.Netns, l.IPv6); err != nil {
		return nil, fmt.Errorf("pod %q: %w", name, err)
	}
	return pod, nil
}

// SavePod keeps addresses and MTU of a pod for other processes.
func (l *Lab) SavePod(p *Pod) error {
	n, ok := l.NodeNamed(p.Node)
	if !ok {
		return fmt.Errorf("pod %q: no node %q", p.Name, p.Node)
	}
	if err := file.WriteJSON(podFile(n, p.Name), p); err != nil {
		return fmt.Errorf("record pod %q: %w", p.Name, err)
	}
	return l.writeHosts()
}

// DeletePod ends the processes of a pod and removes its namespace, cgroup and record. Its network is the
// caller's to remove before. Deleting a pod that is gone is no error.
func (l *Lab) DeletePod(ctx context.Context, p *Pod) error {
	n, ok := l.NodeNamed(p.Node)
	if !ok || p.Netns == n.Netns {
		return fmt.Errorf("pod %q is not a pod of this lab", p.Name)
	}
	unlock, err := lockReady(ctx, l.Name)
	if err != nil {
		return err
	}
	defer unlock()
	return l.removePod(ctx, n, p)
}

func (l *Lab) removePod(ctx context.Context, n *Node, p *Pod) error {
	if err := removeCgroup(ctx, p.Cgroup); err != nil {
		return fmt.Errorf("pod %q: %w", p.Name, err)
	}
	if err := removeNetns(p.Path); err != nil {
		return fmt.Errorf("pod %q: %w", p.Name, err)
	}
	if err := os.Remove(podFile(n, p.Name)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return l.writeHosts()
}

// Pods are the pods of all nodes, by node and then by name.
func (l *Lab) Pods() ([]*Pod, error) {
	var pods []*Pod
	for _, n := range l.nodes {
		entries, err := os.ReadDir(podsDir(n))
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), ".json") {
				continue
			}
			var p Pod
			if err := file.ReadJSON(filepath.Join(podsDir(n), e.Name()), &p); os.IsNotExist(err) {
				continue // deleted meanwhile
			} else if err != nil {
				return nil, err
			}
			pods = append(pods, &p)
		}
	}
	return pods, nil
}

// PodNamed finds a pod by its name.
func (l *Lab) PodNamed(name string) (*Pod, bool, error) {
	pods, err := l.Pods()
	for _, p := range pods {
		if p.Name == name {
			return p, true, err
		}
	}
	return nil, false, err
}

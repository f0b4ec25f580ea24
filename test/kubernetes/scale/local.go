package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// sandbox is the network namespace of a pod on the measured node.
type sandbox struct {
	container, namespace, name, uid string
	address                         netip.Addr
}

// cni calls the plugin as a runtime does.
func (a *agent) cni(ctx context.Context, command string, s *sandbox) (answer []byte, err error) {
	call := exec.CommandContext(ctx, a.o.plugin)
	call.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+s.container, "CNI_NETNS=/run/netns/"+s.container, "CNI_IFNAME=eth0",
		"CNI_PATH="+filepath.Dir(a.o.plugin),
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s;K8S_POD_INFRA_CONTAINER_ID=%s", s.namespace, s.name, s.uid, s.container))
	call.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"scale","type":"beeline-cni","agentSocket":%q}`, filepath.Join(a.o.dir, "agent.sock")))
	var stderr bytes.Buffer
	call.Stderr = &stderr
	if answer, err = call.Output(); err != nil {
		return nil, fmt.Errorf("CNI %s of pod %s/%s: %w: %s%s", command, s.namespace, s.name, err, answer, stderr.Bytes())
	}
	return answer, nil
}

// add creates a sandbox with a network. took is the plugin's time.
func (a *agent) add(ctx context.Context, s *sandbox) (took time.Duration, err error) {
	if out, err := exec.CommandContext(ctx, "ip", "netns", "add", s.container).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("make network namespace: %w: %s", err, out)
	}
	begin := time.Now()
	answer, err := a.cni(ctx, "ADD", s)
	took = time.Since(begin)
	if err != nil {
		return took, err
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(answer, &result); err != nil {
		return took, fmt.Errorf("read the plugin's answer: %w: %s", err, answer)
	}
	s.address = result.IPs[0].Address.Addr()
	return took, nil
}

func (a *agent) del(ctx context.Context, s *sandbox) error {
	if _, err := a.cni(ctx, "DEL", s); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "ip", "netns", "del", s.container).CombinedOutput(); err != nil {
		return fmt.Errorf("delete network namespace: %w: %s", err, out)
	}
	return nil
}

// send makes a pod send a packet that its policies deny: the agent reports it, and from then on keeps the names of all pods and Services.
func (s *sandbox) send() error {
	return ns.WithNetNSPath("/run/netns/"+s.container, func(ns.NetNS) error {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		return unix.Sendto(socket, []byte("?"), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{198, 51, 100, 1}})
	})
}

// addLocals adds the network of node 0's initial pods.
func (a *agent) addLocals(ctx context.Context) (all []*sandbox, err error) {
	for i := 0; i < a.o.pods; i += a.o.nodes {
		_, _, namespace, app := a.o.place(i)
		s := &sandbox{container: fmt.Sprintf("local-%d", i), namespace: namespaceName(namespace), name: podName(app, i), uid: uid(ofPod, i)}
		if _, err := a.add(ctx, s); err != nil {
			return nil, err
		}
		if err := s.send(); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

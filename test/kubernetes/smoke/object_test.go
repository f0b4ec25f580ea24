//go:build kubernetes

package smoke

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/beeline-cni/beeline/test/kubernetes/testcluster"
)

// Ports of the probe's servers, and those with host network.
const (
	echoPort, httpPort         = 7000, 8080
	hostEchoPort, hostHTTPPort = 17000, 18080
)

// podObject is a pod that runs the probe on this node; callers change it.
func podObject(name, node string, args ...string) *corev1.Pod {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"name": name}, Annotations: inPool(anyPool(name))},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr[int64](1),
			Containers: []corev1.Container{{
				Name: "probe", Image: testcluster.Image(), ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
				Env: []corev1.EnvVar{
					field("POD_NAME", "metadata.name"), field("NODE_NAME", "spec.nodeName"), field("NODE_ADDRESS", "status.hostIP"),
				},
			}},
		},
	}
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	if args[0] == "serve" {
		pod.Spec.Containers[0].ReadinessProbe = readyWhen(corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(httpPort)}})
	}
	return pod
}

// hostPodObject is a host-network pod with the probe's servers on ports of their own. They listen on the node's
// address only: a UDP server on the wildcard address would reply from the address closest to the client.
func hostPodObject(name, node string) *corev1.Pod {
	pod := podObject(name, node, "serve",
		fmt.Sprintf("-echo=[$(NODE_ADDRESS)]:%d", hostEchoPort), fmt.Sprintf("-http=[$(NODE_ADDRESS)]:%d", hostHTTPPort))
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Port = intstr.FromInt32(hostHTTPPort)
	return pod
}

// readyWhen is a readiness probe with a period of a second. It tolerates slow replies on a busy machine: else the
// Service would lose its endpoint.
func readyWhen(h corev1.ProbeHandler) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: 3, TimeoutSeconds: 10}
}

// withTurn sets a CPU request for a pod that carries traffic. Without one it would be scheduled after all that starts
// at the same time, and delays would be the process's, not the network's.
func withTurn(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}
	return pod
}

// serviceObject is a Service for pods with this label: port 80 replies with the pod's name, 7 echoes.
func serviceObject(name, label, value string) *corev1.Service {
	port := func(name string, protocol corev1.Protocol, port, target int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: protocol, Port: port, TargetPort: intstr.FromInt32(target)}
	}
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{label: value},
			Ports: []corev1.ServicePort{
				port("who", corev1.ProtocolTCP, 80, httpPort),
				port("echo-tcp", corev1.ProtocolTCP, 7, echoPort),
				port("echo-udp", corev1.ProtocolUDP, 7, echoPort),
			},
		},
	}
}

// apply creates or changes objects.
func apply(t *testing.T, objects ...any) {
	t.Helper()
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outside().feed(string(text), "kubectl", "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// applyForTest creates objects and deletes them at the end of the test.
func applyForTest(t *testing.T, objects ...any) {
	t.Helper()
	t.Cleanup(func() { remove(t, objects...) })
	apply(t, objects...)
}

// remove deletes objects and waits until they are gone, pods without grace period. A missing object is no error.
func remove(t *testing.T, objects ...any) {
	t.Helper()
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
	text, err := json.Marshal(list)
	if err != nil {
		t.Error(err)
	}
	if _, err := outside().feed(string(text), "kubectl", "delete", "--ignore-not-found", "--grace-period=1", "--timeout="+patience.String(), "-f", "-"); err != nil {
		t.Error(err)
	}
}

// get reads an object or a list of them: get(t, &pods, "pods", "-l", "app=x").
func get(into any, args ...string) error {
	text, err := kubectl(append([]string{"-n", namespace, "get", "-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}

func mustGet(t *testing.T, into any, args ...string) {
	t.Helper()
	if err := get(into, args...); err != nil {
		t.Fatal(err)
	}
}

func ptr[T any](v T) *T { return &v }

package cluster

import (
	"crypto/rand"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Everything that a run creates has these labels.
const (
	labelName = "app.kubernetes.io/name"
	labelRun  = "beeline-bench-run"
	labelRole = "beeline-bench-role"

	appName       = "beeline-bench"
	containerName = "bench"
	// everything selects what any run has created.
	everything = labelName + "=" + appName
)

// newRunName returns a name that no other run has.
func newRunName() string { return strings.ToLower(rand.Text()[:8]) }

func labels(run string) map[string]string {
	return map[string]string{labelName: appName, labelRun: run}
}

// runSelector selects what one run has created.
func runSelector(run string) string { return everything + "," + labelRun + "=" + run }

// newNamespace is a run's own. Pods in the network of their node are only admitted where a namespace is privileged.
func newNamespace(run string) *corev1.Namespace {
	l := labels(run)
	for _, mode := range []string{"enforce", "audit", "warn"} {
		l["pod-security.kubernetes.io/"+mode] = "privileged"
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: appName + "-" + run, Labels: l}}
}

// newPod has no rights beyond its network, requests nothing, goes to its node whatever the taints there, and ends by
// itself after the limit, also when the bench is gone.
func newPod(namespace, run string, r role, node string, o Options, limit time.Duration) *corev1.Pod {
	l := labels(run)
	l[labelRole] = string(r)
	const unprivileged = 65534
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(run, r), Namespace: namespace, Labels: l},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: r.hosted(), RestartPolicy: corev1.RestartPolicyNever,
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			ActiveDeadlineSeconds: new(int64(limit.Seconds())), TerminationGracePeriodSeconds: new(int64(1)),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: new(int64(unprivileged)), RunAsGroup: new(int64(unprivileged)), RunAsNonRoot: new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: containerName, Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"beeline-bench", "wait"},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
			}},
			Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{
				EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory},
			}}},
		},
	}
	if o.PullSecret != "" {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: o.PullSecret}}
	}
	return pod
}

func podName(run string, r role) string { return appName + "-" + run + "-" + string(r) }

// newService has the one pod of a role behind it.
func newService(namespace, run string, r role, six bool, p ports) *corev1.Service {
	l := labels(run)
	l[labelRole] = string(r)
	family := corev1.IPv4Protocol
	if six {
		family = corev1.IPv6Protocol
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: podName(run, r), Namespace: namespace, Labels: l},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: l, Ports: p.request(),
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), IPFamilies: []corev1.IPFamily{family},
		},
	}
}

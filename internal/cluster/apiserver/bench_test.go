package apiserver

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// manyPods is how many pods a large cluster has.
const manyPods = 30000

// realisticPod is a pod of a Deployment on one of 1,000 nodes.
func realisticPod(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("app-%d-6d4b75cb6d-%05d", i%1000, i),
			Labels:      map[string]string{"app": fmt.Sprintf("app-%d", i%1000), "pod-template-hash": "6d4b75cb6d"},
			Annotations: map[string]string{"example.org/what-is-not-kept": strings.Repeat("x", 1000)},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%1000), Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9090}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.%d.%d.%d", 64+i/65536, i/256%256, i%256)}}},
	}
}

func fullTable(b *testing.B) *Source {
	b.Helper()
	s := newSource(&connection{}, "node-0", nil)
	for i := range manyPods {
		item, err := s.reduce(realisticPod(i))
		if err != nil || item.err != nil {
			b.Fatal(err, item.err)
		}
		s.pods.set(item)
	}
	s.pods.list()
	return s
}

// BenchmarkPodMemory measures the memory of one pod among many.
func BenchmarkPodMemory(b *testing.B) {
	for b.Loop() {
		heap := func() uint64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		s := fullTable(b)
		b.ReportMetric(float64(heap()-before)/manyPods, "B/pod")
		runtime.KeepAlive(s)
	}
}

// BenchmarkPodChange measures reducing one changed pod among many and making a new list.
func BenchmarkPodChange(b *testing.B) {
	s := fullTable(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := realisticPod(i % manyPods)
		p.Labels["changed"] = fmt.Sprint(i)
		item, err := s.reduce(p)
		if err != nil || item.err != nil {
			b.Fatal(err, item.err)
		}
		if !s.pods.set(item) || s.pods.list().Len() != manyPods {
			b.Fatal("no change")
		}
	}
}

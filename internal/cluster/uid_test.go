package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// UIDs are equal exactly if their texts are.
func TestUID(t *testing.T) {
	if NewUID("") != (UID{}) {
		t.Error("no text is not the zero UID")
	}
	texts := []string{
		"6f1d7a52-6e0a-4c0e-9a51-0d8f6b1c2e3f", "6f1d7a52-6e0a-4c0e-9a51-0d8f6b1c2e30",
		"0123456789abcdef0123456789abcdef", // of a static pod, as the kubelet makes it
		"6f1d7a52-6e0a-4c0e-9a51-0d8f6b1c2e3", "6f1d7a52-6e0a-4c0e-9a51-0d8f6b1c2e3g", "of-a-test", "abcd", "abcd00",
	}
	seen := map[UID]string{}
	for _, text := range texts {
		uid := NewUID(text)
		if uid != NewUID(text) || uid == (UID{}) {
			t.Errorf("%s becomes %x and then %x", text, uid, NewUID(text))
		}
		if other, taken := seen[uid]; taken {
			t.Errorf("%s and %s become the same", text, other)
		}
		seen[uid] = text
	}
}

// Pods with the same named ports share one list, however many lists there are; others have their own.
func TestPortsAreShared(t *testing.T) {
	of := func(name string, number int32) []ContainerPort {
		pod, _ := reducePod(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP}},
		}}}})
		return pod.Ports
	}
	first := of("http", 8080)
	if again := of("http", 8080); !Same(first, again) {
		t.Error("two pods with the same ports have two lists")
	}
	for _, other := range [][]ContainerPort{of("http", 8081), of("https", 8080)} {
		if len(other) != 1 || Same(first, other) {
			t.Errorf("a pod with other ports has %v", other)
		}
	}
	for number := range int32(2 * knownPortsMax) {
		if got := of("x", number+1); got[0] != (ContainerPort{"x", TCP, uint16(number + 1)}) {
			t.Fatalf("port %d became %v", number+1, got)
		}
	}
	if len(knownPorts.all) > knownPortsMax {
		t.Errorf("%d lists are remembered", len(knownPorts.all))
	}
}

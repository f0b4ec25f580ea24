package apiserver

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// fill gives every field of an object a value.
func fill(v reflect.Value) {
	switch of := v.Addr().Interface().(type) {
	case *metav1.Time:
		*of = metav1.Unix(1e9, 0)
		return
	case *metav1.MicroTime, *quantity.Quantity, *metav1.FieldsV1:
		return
	case *intstr.IntOrString:
		*of = intstr.FromInt32(80)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("a")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	default:
		panic(v.Type())
	}
}

// full are objects of all kinds with all fields set, and valid in what is kept.
func full() []runtime.Object {
	node, namespace, pod, service, slice, policy := &corev1.Node{}, &corev1.Namespace{}, &corev1.Pod{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}, &networkingv1.NetworkPolicy{}
	all := []runtime.Object{node, namespace, pod, service, slice, policy}
	for _, o := range all {
		fill(reflect.ValueOf(o).Elem())
		o.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(""))
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeExternalIP, Address: "203.0.113.1"}}
	node.Spec.PodCIDR, node.Spec.PodCIDRs = "10.1.1.0/24", []string{"10.1.1.0/24", "fd00::/64"}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "Ready"}}
	pod.Annotations[corev1.MirrorPodAnnotationKey] = "0123"
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodSucceeded, "10.1.1.7", []corev1.PodIP{{IP: "10.1.1.7"}, {IP: "fd00::7"}}
	always := corev1.ContainerRestartPolicyAlways
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			containers[i].RestartPolicy = &always
			containers[i].Ports = []corev1.ContainerPort{{Name: fmt.Sprint("port-", i), ContainerPort: 80, Protocol: corev1.ProtocolTCP, HostIP: "192.0.2.1"}}
		}
	}
	service.Spec.ClusterIP, service.Spec.ClusterIPs, service.Spec.ExternalIPs = "10.96.0.1", []string{"10.96.0.1"}, []string{"203.0.113.7"}
	service.Spec.Type, service.Spec.SessionAffinity = corev1.ServiceTypeLoadBalancer, corev1.ServiceAffinityClientIP
	service.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080, TargetPort: intstr.FromInt32(8080)}}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.8"}}
	service.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
	slice.AddressType, slice.Labels[discoveryv1.LabelServiceName] = discoveryv1.AddressTypeIPv4, "web"
	for i := range slice.Ports {
		*slice.Ports[i].Protocol = corev1.ProtocolTCP
	}
	for i := range slice.Endpoints {
		slice.Endpoints[i].Addresses = []string{fmt.Sprintf("10.1.1.%d", i)}
	}
	policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	return all
}

// message is the encoding of an object by an API server.
func message(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	kinds, _, err := scheme.ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	for _, info := range codecs.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeProtobuf {
			var b bytes.Buffer
			if err := info.Serializer.Encode(o, &b); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
	}
	t.Fatal("no serializer for protobuf")
	return nil
}

// serializers are the usual one for protobuf and the lean one, as the client uses them.
func serializers(t testing.TB) (usual, lesser runtime.Decoder) {
	t.Helper()
	factory := codecs.WithoutConversion()
	for i, info := range factory.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeProtobuf {
			return factory.DecoderToVersion(info.Serializer, nil), factory.DecoderToVersion(lean{factory}.SupportedMediaTypes()[i].Serializer, nil)
		}
	}
	t.Fatal("no serializer for protobuf")
	return nil, nil
}

// The dropped parts of messages make no difference.
func TestLean(t *testing.T) {
	usual, lean := serializers(t)
	source := newSource(&connection{}, "a", nil)
	for _, o := range full() {
		sent := message(t, o)
		want, err := runtime.Decode(usual, sent)
		if err != nil {
			t.Fatal(err)
		}
		got, err := runtime.Decode(lean, sent)
		if err != nil {
			t.Fatal(err)
		}
		if m, _ := meta.Accessor(got); len(m.GetManagedFields()) > 0 {
			t.Errorf("%T: who manages fields is kept", got)
		}
		w, errWant := source.reduce(want)
		g, errGot := source.reduce(got)
		if errWant != nil || errGot != nil || w.err != nil && reflect.TypeOf(o) != reflect.TypeFor[*networkingv1.NetworkPolicy]() {
			t.Fatalf("%T: %v, %v, %v", o, errWant, errGot, w.err)
		}
		if !reflect.DeepEqual(w, g) {
			t.Errorf("%T (-full +lean):\n%s", o, cmp.Diff(fmt.Sprintf("%+v", w), fmt.Sprintf("%+v", g)))
		}
		mw, _ := meta.Accessor(want)
		mg, _ := meta.Accessor(got)
		if mw.GetResourceVersion() != mg.GetResourceVersion() || !reflect.DeepEqual(mw.GetAnnotations(), mg.GetAnnotations()) {
			t.Errorf("%T: watches cannot go on: %+v", o, mg)
		}
	}
}

// Messages of other kinds, or broken ones, decode as without lean.
func TestLeanLeavesTheRest(t *testing.T) {
	usual, lean := serializers(t)
	pod := message(t, realisticPod(1))
	for what, sent := range map[string][]byte{
		"status":         message(t, &metav1.Status{Message: "gone"}),
		"list":           message(t, &corev1.PodList{Items: []corev1.Pod{*realisticPod(1), *realisticPod(2)}}),
		"empty":          {},
		"no protobuf":    []byte(`{"kind":"Pod"}`),
		"no envelope":    []byte("k8s\x00\xff\xff"),
		"broken":         pod[:len(pod)/2],
		"broken message": bytes.Replace(pod, []byte("namespace-1"), []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), 1),
	} {
		want, errWant := runtime.Decode(usual, sent)
		got, errGot := runtime.Decode(lean, sent)
		if (errWant == nil) != (errGot == nil) || errWant == nil && what != "broken message" && !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %v, %v, want %v, %v", what, got, errGot, want, errWant)
		}
	}
	for cut := range pod {
		want, errWant := runtime.Decode(usual, pod[:cut])
		got, errGot := runtime.Decode(lean, pod[:cut])
		if (errWant == nil) != (errGot == nil) {
			t.Fatalf("cut after %d bytes: %v, %v, want %v, %v", cut, got, errGot, want, errWant)
		}
	}
}

// BenchmarkDecodePod is one pod of a watch.
func BenchmarkDecodePod(b *testing.B) {
	pod := realisticPod(1)
	for i := range 20 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: strings.Repeat("v", 40)})
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat("f", 1500))}}
	usual, lean := serializers(b)
	sent := message(b, pod)
	for name, decoder := range map[string]runtime.Decoder{"usual": usual, "lean": lean} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := runtime.Decode(decoder, sent); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

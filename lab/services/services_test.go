package services

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/beeline-cni/beeline/lab/testbed"
)

var nodes = []*testbed.Node{{Name: "n1"}, {Name: "n2"}}

func TestFill(t *testing.T) {
	given := Service{Name: "target", Address: TargetAddress(0), Ports: []int{80, 81}, NodePorts: []int{30080, 30081}, Backends: []Backend{{TargetAddress(5), "n2"}}}
	const total, backends = 10000, 10
	objects := append(given.Objects(), Fill(total-1, backends, nodes)...)
	if len(objects) != 2*total {
		t.Fatalf("%d objects", len(objects))
	}
	addresses, endpoints, names := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Service:
			addresses[o.Spec.ClusterIP], names[o.Name] = true, true
		case *discoveryv1.EndpointSlice:
			if !names[o.Labels[discoveryv1.LabelServiceName]] {
				t.Errorf("%s is of no Service", o.Name)
			}
			for _, e := range o.Endpoints {
				endpoints[e.Addresses[0]] = true
			}
		}
	}
	if len(addresses) != total || len(endpoints) != (total-1)*backends+1 {
		t.Errorf("%d addresses and %d endpoints are different ones", len(addresses), len(endpoints))
	}
	first := objects[0].(*corev1.Service)
	if first.Spec.Type != corev1.ServiceTypeNodePort || len(first.Spec.Ports) != 2 || first.Spec.Ports[1].NodePort != 30081 {
		t.Errorf("%+v", first.Spec)
	}
	slice := objects[1].(*discoveryv1.EndpointSlice)
	if *slice.Ports[0].Name != first.Spec.Ports[0].Name || *slice.Ports[1].Port != 81 || *slice.Endpoints[0].NodeName != "n2" {
		t.Errorf("%+v", slice)
	}
}

func TestAddressesAreDifferent(t *testing.T) {
	var got []string
	for i := range 2 {
		got = append(got, TargetAddress(i).String(), ChangedAddress(i).String(), Filler(255*i, 1, nodes).Address.String())
	}
	if diff := cmp.Diff([]string{"10.96.0.1", "10.98.0.1", "10.97.0.1", "10.96.0.2", "10.98.0.2", "10.97.1.0"}, got); diff != "" {
		t.Error(diff)
	}
}

package nodeport

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/beeline-cni/beeline/lab/packetgen"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/testbed"
)

func TestSearch(t *testing.T) {
	for _, capacity := range []float64{900e3, 500e3, 260e3, 40e3} {
		asked := map[float64]int{}
		rate, err := search(t.Context(), 1e6, func(rate float64) (float64, error) {
			asked[rate]++
			if asked[rate] < tries { // something else had the CPU
				return 0.5, nil
			}
			return max(0, 1-capacity/rate), nil
		})
		// What loses less than the bound may be that much above the capacity.
		if err != nil || rate > capacity*1.002 || rate < capacity-1e6/(1<<steps) {
			t.Errorf("capacity %.0f: found %.0f, %v", capacity, rate, err)
		}
		if len(asked) > steps+1 {
			t.Errorf("%d rates are asked for", len(asked))
		}
	}
	rate, err := search(t.Context(), 1e6, func(float64) (float64, error) { return 0, nil })
	if err != nil || rate != 1e6 {
		t.Errorf("nothing is lost: %.0f, %v; want the top", rate, err)
	}
	rate, err = search(t.Context(), 1e6, func(float64) (float64, error) { return 0.5, nil })
	if err != nil || rate != 0 {
		t.Errorf("half is lost at any rate: %.0f, %v; want none", rate, err)
	}
	broken := errors.New("broken")
	if _, err = search(t.Context(), 1e6, func(float64) (float64, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestCores(t *testing.T) {
	for _, test := range []struct {
		there []int
		want  cores
	}{
		{[]int{0, 1}, cores{measured: 1, other: 0}},
		{[]int{2, 3, 5, 7}, cores{measured: 3, other: 5}},
	} {
		if got, err := coresOf(test.there); err != nil || got != test.want {
			t.Errorf("of %v: %v, %v; want %v", test.there, got, err, test.want)
		}
	}
	if _, err := coresOf([]int{0}); err == nil {
		t.Error("one CPU is enough")
	}
}

func TestOutcome(t *testing.T) {
	o := outcome{Offered: packetgen.Offered{Frames: 1000, Took: 2 * time.Second}, arrived: 900, busy: 500 * time.Millisecond}
	if o.rate() != 450 || o.left() != 0.75 || o.loss() < 0.0999 || o.loss() > 0.1001 {
		t.Errorf("rate %v, left %v, loss %v", o.rate(), o.left(), o.loss())
	}
	if o := (outcome{}); o.rate() != 0 || o.left() != 0 || o.loss() != 0 {
		t.Errorf("nothing: rate %v, left %v, loss %v", o.rate(), o.left(), o.loss())
	}
}

// A fixed rate that the generator did not make says nothing: it is made again, and not for ever.
func TestOffered(t *testing.T) {
	for name, test := range map[string]struct {
		made  []uint64 // frames in a second, of 1000
		want  uint64
		error string
	}{
		"at once":    {[]uint64{990}, 990, ""},
		"third time": {[]uint64{500, 969, 1000}, 1000, ""},
		"never":      {[]uint64{500, 500, 500}, 0, "less than 97 % of 1000 packets per second, 3 times"},
	} {
		t.Run(name, func(t *testing.T) {
			times := 0
			o, err := offered(t.Context(), 1000, func() (outcome, error) {
				times++
				return outcome{Offered: packetgen.Offered{Frames: test.made[times-1], Took: time.Second}}, nil
			})
			if test.error == "" && (err != nil || o.Frames != test.want) || test.error != "" && (err == nil || !strings.Contains(err.Error(), test.error)) {
				t.Errorf("%d frames, %v; want %d, %q", o.Frames, err, test.want, test.error)
			}
			if times != len(test.made) {
				t.Errorf("offered %d times, want %d", times, len(test.made))
			}
		})
	}
	broken := errors.New("broken")
	if _, err := offered(t.Context(), 1000, func() (outcome, error) { return outcome{}, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestObjects(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) { testObjects(t, netip.MustParseAddr("10.77.2.2"), corev1.IPv4Protocol) })
	t.Run("IPv6", func(t *testing.T) { testObjects(t, netip.MustParseAddr("fd77:1::2"), corev1.IPv6Protocol) })
}

func testObjects(t *testing.T, backend netip.Addr, family corev1.IPFamily) {
	nodes := []*testbed.Node{{Name: "n1"}, {Name: "n2"}}
	protocols := map[string]corev1.Protocol{}
	nodePorts := map[int32]string{}
	services := 0
	for _, o := range objects(nodes, "n2", backend) {
		switch o := o.(type) {
		case *corev1.Service:
			services++
			if address := netip.MustParseAddr(o.Spec.ClusterIP); o.Spec.IPFamilies[0] != family || address.Is6() != backend.Is6() {
				t.Errorf("%s has %s, %v", o.Name, address, o.Spec.IPFamilies)
			}
			for _, p := range o.Spec.Ports {
				if p.NodePort == 0 {
					continue
				}
				if taken := nodePorts[p.NodePort]; taken != "" {
					t.Errorf("NodePort %d is of %s and of %s", p.NodePort, taken, o.Name)
				}
				nodePorts[p.NodePort], protocols[o.Name] = o.Name, p.Protocol
			}
		case *discoveryv1.EndpointSlice:
			if o.Labels[discoveryv1.LabelServiceName] == "udp" && *o.Ports[0].Protocol != corev1.ProtocolUDP {
				t.Errorf("endpoints of udp: %v", *o.Ports[0].Protocol)
			}
			for _, e := range o.Endpoints {
				if address := netip.MustParseAddr(e.Addresses[0]); string(o.AddressType) != string(family) || address.Is6() != backend.Is6() {
					t.Errorf("%s has %s, %s", o.Name, address, o.AddressType)
				}
			}
		}
	}
	if protocols["udp"] != corev1.ProtocolUDP || protocols["tcp"] != corev1.ProtocolTCP || nodePorts[udpNodePort] != "udp" {
		t.Errorf("%v, %v", protocols, nodePorts)
	}
	if services != otherServices+2 {
		t.Errorf("%d Services", services)
	}
}

func TestNew(t *testing.T) {
	p, err := New(round.Options{Networks: []string{"node"}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range p.Cells {
		names = append(names, c.Workload.Info().Name+" "+string(c.Placement))
	}
	for _, want := range []string{"nodeport_saturation forwarder-core", "nodeport_saturation one-core", "nodeport_lossless forwarder-core", "nodeport_cpu_4m forwarder-core", "nodeport_tcp_crr one-core"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s among %q", want, names)
		}
	}
	if slices.Contains(names, "nodeport_redis_get one-core") {
		t.Error("applications are measured without being asked for")
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	p, err = New(round.Options{Workloads: []string{"nodeport_redis_get"}})
	if err != nil || len(p.Cells) != 1 {
		t.Errorf("%d cells, %v", len(p.Cells), err)
	}
	p, err = New(round.Options{Full: true, IPv6: true})
	if err != nil || len(p.Cells) != len(cells()) || !p.IPv6 {
		t.Errorf("a full plan has %d of %d cells, IPv6 %v, %v", len(p.Cells), len(cells()), p.IPv6, err)
	}
	for want, c := range map[string]round.Options{
		`no network "beeline"`: {Networks: []string{"beeline"}},
		`no figure "tcp_rr"`:   {Workloads: []string{"tcp_rr"}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestThreadTime(t *testing.T) {
	if threadTime(1) <= 0 {
		t.Error("process 1 has used no time")
	}
	if threadTime(1<<22) != 0 {
		t.Error("a process that cannot be has used time")
	}
}

// What could not be arranged is not taken for arranged: TCP would be measured with the threads of the placement before.
func TestArrangeTriesAgain(t *testing.T) {
	threaded := &device{netns: testbed.Netns{Path: "/nowhere"}, name: "none", threads: []int{1 << 30}}
	m := &member{devices: devices{threaded, threaded, threaded, threaded}}
	for range 2 {
		if err := m.arrange(result.OneCore, carryTCP); err == nil {
			t.Error("a lab that is not there is arranged")
		}
	}
}

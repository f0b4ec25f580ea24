package agent

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/programs"
	"github.com/beeline-cni/beeline/internal/agent/reconcile"
	"github.com/beeline-cni/beeline/internal/agent/source"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
)

// everywhere is a source with a problem that every node sees.
type everywhere struct {
	silent
	ready []string
}

var wrongEverywhere = cluster.ObjectProblem{Kind: cluster.KindEndpointSlice, Key: cluster.Key{Namespace: "shop", Name: "web-1"}, UID: "u2", Text: "EndpointSlice shop/web-1: wrong"}

func (e everywhere) Problems() []string { return []string{wrongEverywhere.Text} }
func (e everywhere) ObjectProblems() []cluster.ObjectProblem {
	return []cluster.ObjectProblem{wrongEverywhere}
}
func (e everywhere) ReadyNodes() []string         { return e.ready }
func (everywhere) Host() string                   { return "" }
func (everywhere) Outages() (count int, now bool) { return 0, false }
func (everywhere) Addresses() []netip.AddrPort    { return nil }

// A problem of the cluster is one Event on its object, and not one on every node; a problem of a node is its own.
func TestClusterWideFaultsAreReportedOnce(t *testing.T) {
	ready := []string{"a", "b", "c"}
	said := map[string]int{}
	of := func(kind cluster.Kind, name, uid, text string) cluster.ObjectProblem {
		return cluster.ObjectProblem{Kind: kind, Key: cluster.Key{Namespace: "shop", Name: name}, UID: uid, Text: text}
	}
	for _, name := range ready {
		services := func() lb.Outcome {
			return lb.Outcome{Problems: []service.Problem{
				{ObjectProblem: of(cluster.KindService, "web", "u1", "Service shop/web: all see this")},
				{ObjectProblem: of(cluster.KindService, "web", "u1", "Service shop/web: this is seen here"), Local: true},
				{ObjectProblem: of(cluster.KindPod, "pod", "", "Pod shop/pod: hostPort 80/TCP does not answer"), Local: true},
			}}
		}
		a := &Agent{reconciler: &reconcile.Reconciler{}, source: everywhere{ready: ready}, servicesStatus: services, config: Config{NodeConfig: NodeConfig{NodeName: name}}, endpoints: &endpoint.Endpoints{}, vetter: &source.Vetter{}, programs: &programs.Programs{}}
		p := a.problemSources(a.reconciler.Status())
		p.ports[cluster.Key{Namespace: "shop", Name: "pod"}] = "u3"
		p.vetted = []cluster.ObjectProblem{{Kind: cluster.KindNode, Key: cluster.Key{Name: "evil"}, UID: "evil", Text: "Node evil: address 8.8.8.8"}}
		o := p.outlook()
		for _, text := range o.Problems {
			said["node: "+text]++
		}
		for _, w := range o.Objects {
			said[fmt.Sprintf("%s %s %s %s: %s", w.Kind, w.Key, w.UID, w.Reason, w.Text)]++
		}
	}
	if diff := cmp.Diff(map[string]int{
		"Service shop/web u1 BeelineObjectProblem: Service shop/web: all see this":          1,
		"EndpointSlice shop/web-1 u2 BeelineObjectProblem: EndpointSlice shop/web-1: wrong": 1,
		"Node evil evil BeelineObjectProblem: Node evil: address 8.8.8.8":                   1,
		"node: Service shop/web: this is seen here":                                         3,
		"Pod shop/pod u3 BeelinePodProblem: Pod shop/pod: hostPort 80/TCP does not answer":  3,
	}, said); diff != "" {
		t.Errorf("Events of three nodes (-want +said):\n%s", diff)
	}
}

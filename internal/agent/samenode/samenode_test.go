package samenode

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/samenode"
)

// fake is a datapath that records.
type fake struct {
	attached int
	gone     bool
	pods     map[netip.Addr]samenode.Pod
	counts   samenode.Counts
	// destroys are the namespaces of each call.
	destroys [][]string
	cannot   error
}

func (f *fake) Attach() error           { f.attached++; f.gone = false; return nil }
func (f *fake) Attached() (bool, error) { return !f.gone, nil }
func (f *fake) Sync(want map[netip.Addr]samenode.Pod) (int, error) {
	f.pods = want
	return 0, nil
}
func (f *fake) Sweep() (samenode.Swept, error) { return samenode.Swept{Sockets: 4, Meeting: 2}, nil }
func (f *fake) Counts() (samenode.Counts, error) {
	return f.counts, nil
}
func (f *fake) DestroyRevoked(netns []string) (int, error) {
	f.destroys = append(f.destroys, netns)
	return 1, nil
}
func (f *fake) CannotDestroy() error { return f.cannot }

var a1, a2, b1 = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")

// endpoint is one of a pod in a namespace, with the index as the number of its network namespace.
func endpoint(namespace, name, uid string, index int, addr netip.Addr) agentapi.Endpoint {
	return agentapi.Endpoint{
		Pod: agentapi.PodRef{Namespace: namespace, Name: name, UID: uid}, HostDevice: name, HostIfIndex: index,
		Netns: "/ns/" + name, Addresses: []netip.Addr{addr},
	}
}

func pod(namespace, name, uid, mode string) *cluster.Pod {
	return &cluster.Pod{Namespace: namespace, Name: name, UID: cluster.NewUID(uid), SameNode: mode}
}

// stage is a SameNode on a fake.
func stage(f *fake, endpoints *[]agentapi.Endpoint) *SameNode {
	return New(Options{
		Config: Config{SameNode: ModeSockets, SameNodeMax: 120}, Datapath: f, Beat: &loop.Beat{}, Log: slog.New(slog.DiscardHandler),
		Ready:     func() bool { return true },
		Endpoints: func() ([]agentapi.Endpoint, bool) { return *endpoints, true },
		Cookie: func(netns string) (uint64, error) {
			if netns == "/ns/broken" {
				return 0, errors.New("no such namespace")
			}
			return uint64(len(*endpoints)), nil
		},
	})
}

func TestOptedIn(t *testing.T) {
	endpoints := []agentapi.Endpoint{
		endpoint("shop", "web", "1", 1, a1), endpoint("shop", "db", "2", 2, a2), endpoint("shop", "old", "3", 3, b1),
		endpoint("shop", "gone", "5", 5, b1), endpoint("shop", "unknown", "", 6, b1), endpoint("other", "web", "", 7, b1),
	}
	host := pod("shop", "host", "6", "sockets")
	host.HostNetwork = true
	ended := pod("shop", "gone", "5", "sockets")
	ended.Ended = true
	s := &cluster.Snapshot{Pods: cluster.ListOf(
		pod("other", "web", "", ""), pod("shop", "db", "2", ""), ended, host,
		pod("shop", "old", "4", "sockets"), pod("shop", "unknown", "9", "sockets"), pod("shop", "web", "1", "sockets"))}
	var got []string
	for _, e := range optedIn(endpoints, s) {
		got = append(got, e.PodName())
	}
	if diff := cmp.Diff([]string{"shop/web", "shop/unknown"}, got); diff != "" {
		t.Errorf("pods that opted in (-wanted +got):\n%s", diff)
	}
}

// A namespace with many pods takes nothing from another one.
func TestDivide(t *testing.T) {
	pods := map[string][]agentapi.Endpoint{"a": {endpoint("a", "a1", "", 1, a1), endpoint("a", "a2", "", 2, a2)}, "b": {endpoint("b", "b1", "", 3, b1)}}
	got := divide(pods, map[string]uint64{"a1": 11, "a2": 12, "b1": 13}, 120)
	want := map[netip.Addr]samenode.Pod{a1: {Netns: 11, Share: 30}, a2: {Netns: 12, Share: 30}, b1: {Netns: 13, Share: 60}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}

// Nothing is attached before policies are known, and again what is gone.
func TestAttach(t *testing.T) {
	f := &fake{}
	endpoints := []agentapi.Endpoint{endpoint("shop", "web", "1", 1, a1)}
	s := stage(f, &endpoints)
	ready := false
	s.Ready = func() bool { return ready }
	s.Pass()
	s.Update(&cluster.Snapshot{Pods: cluster.ListOf(pod("shop", "web", "1", "sockets"))})
	s.Pass()
	if f.attached != 0 || f.pods != nil {
		t.Errorf("attached %d times with pods %v before policies are known", f.attached, f.pods)
	}
	ready = true
	s.Pass()
	s.Pass()
	if f.attached != 1 || len(f.pods) != 1 {
		t.Errorf("attached %d times, pods %v", f.attached, f.pods)
	}
	f.gone = true
	s.Pass()
	if f.attached != 2 {
		t.Errorf("attached %d times", f.attached)
	}
	s.Update(&cluster.Snapshot{Unknown: cluster.Kinds{cluster.KindPod}})
	s.Pass()
	if len(f.pods) != 1 {
		t.Errorf("pods %v while the cluster's are unknown", f.pods)
	}
}

// A pod without a readable namespace is a problem, and no reason to leave out the others.
func TestBrokenNamespace(t *testing.T) {
	f := &fake{}
	endpoints := []agentapi.Endpoint{endpoint("shop", "broken", "1", 1, a1), endpoint("shop", "web", "2", 2, a2)}
	s := stage(f, &endpoints)
	s.Update(&cluster.Snapshot{Pods: cluster.ListOf(pod("shop", "broken", "1", "sockets"), pod("shop", "web", "2", "sockets"))})
	s.Pass()
	if _, ok := f.pods[a2]; !ok || len(f.pods) != 1 {
		t.Errorf("pods %v", f.pods)
	}
	if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0], "pod shop/broken: no such namespace") {
		t.Errorf("problems %q", p)
	}
	if c := s.Choice(); c.Selected != "sockets" || !strings.Contains(c.Reason, "1 pods opted in, 2 of their 4 sockets meet") {
		t.Errorf("%+v", c)
	}
}

// The cookie of a namespace is read once, and again for another endpoint on the same device.
func TestCookie(t *testing.T) {
	f := &fake{}
	endpoints := []agentapi.Endpoint{endpoint("shop", "web", "1", 1, a1)}
	s := stage(f, &endpoints)
	reads := 0
	s.Cookie = func(string) (uint64, error) { reads++; return uint64(reads), nil }
	s.Update(&cluster.Snapshot{Pods: cluster.ListOf(pod("shop", "web", "1", "sockets"))})
	s.Pass()
	s.Pass()
	endpoints[0].HostIfIndex = 2
	s.Pass()
	if reads != 2 || f.pods[a1].Netns != 2 {
		t.Errorf("%d reads, pods %v", reads, f.pods)
	}
}

// Revoked sockets are destroyed once, when messages were denied.
func TestDestroy(t *testing.T) {
	f := &fake{counts: samenode.Counts{Left: map[samenode.Reason]uint64{}}}
	endpoints := []agentapi.Endpoint{endpoint("shop", "web", "1", 1, a1)}
	s := stage(f, &endpoints)
	s.Update(&cluster.Snapshot{Pods: cluster.ListOf(pod("shop", "web", "1", "sockets"))})
	s.Pass()
	f.counts.Left["policy"] = 2
	s.Pass()
	s.Pass()
	if diff := cmp.Diff([][]string{{"/ns/web"}}, f.destroys); diff != "" || s.Status().Destroyed != 1 {
		t.Errorf("destroyed in %v, %+v", f.destroys, s.Status())
	}
	f.cannot = errors.New("Linux 6.5")
	f.counts.Left["policy"] = 3
	s.Pass()
	if len(f.destroys) != 1 || !strings.Contains(s.Choice().Reason, "not destroyed") {
		t.Errorf("destroyed in %v, %+v", f.destroys, s.Choice())
	}
}

// What the kernel cannot do is off, and a problem.
func TestImpossible(t *testing.T) {
	s := New(Options{Config: Config{SameNode: ModeSockets}, Impossible: errors.New("no sk_msg"), Log: slog.New(slog.DiscardHandler)})
	s.Update(nil)
	if c := s.Choice(); c.Selected != "off" || !strings.Contains(c.Reason, "no sk_msg") {
		t.Errorf("%+v", c)
	}
	if len(s.Problems()) != 1 {
		t.Errorf("%q", s.Problems())
	}
	off := New(Options{Config: Defaults()})
	if c := off.Choice(); c.Selected != "off" || len(off.Problems()) != 0 {
		t.Errorf("%+v", c)
	}
}

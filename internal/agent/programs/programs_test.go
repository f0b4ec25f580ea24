package programs

import (
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/node"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// Programs are attached to sockets after Services are known, and once. There is no datapath: an attempt panics.
func TestSocketsWaitForServices(t *testing.T) {
	waiting := New(Options{Services: lb.New(lb.Defaults(), nil, lb.Hooks{}, &loop.Beat{}, slog.New(slog.DiscardHandler))})
	done := New(Options{})
	done.sockets = true
	if err := errors.Join(waiting.attachSockets(), done.attachSockets()); err != nil || waiting.sockets {
		t.Errorf("attached without Services: %t, error %v", waiting.sockets, err)
	}
}

// Behind kube-proxy each uplink translates what the kernel stack sends. Its programs are attached once.
func TestStackSends(t *testing.T) {
	p := New(Options{KubeProxy: true, Datapath: attach.New(nil)})
	if !p.stackSends(&endpoint.Endpoints{}) {
		t.Error("nothing is translated for kube-proxy")
	}
	p.Update([]netdev.Uplink{{Name: "eth0"}})
	p.Datapath.SetStackSends(true)
	if err := p.AttachForStack(); err != nil { // an attempt panics
		t.Error(err)
	}
}

// A tunnel device that cannot be updated remains: nodes are behind it.
func TestTunnelRemains(t *testing.T) {
	want := node.Desired{Tunnel: node.Tunnel{Missing: errors.New("no memory")}}
	if err := New(Options{}).RemoveTunnel(want); err != nil {
		t.Error(err)
	}
}

// A parent that is no uplink any more keeps its programs: its pods would be open without them.
func TestOtherParents(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	p := New(Options{})
	p.parents = map[int]bool{lo.Index: true, 1 << 30: true} // the other one is gone
	if all := p.otherParents(); len(all) != 1 || all[0].Name != "lo" {
		t.Errorf("parents that are no uplinks: %v", all)
	}
	p.Update([]netdev.Uplink{{Name: "lo", Index: lo.Index}})
	if all := p.otherParents(); len(all) != 0 {
		t.Errorf("an uplink is another parent: %v", all)
	}
}

// While the uplink is away, the WireGuard device and this node's key stay: the other nodes keep their peer.
func TestEncryptionStaysWithoutUplink(t *testing.T) {
	p := New(Options{Encryption: node.EncryptionWireGuard, Announce: func(a cluster.Announced) { t.Errorf("%+v is announced", a) }})
	f := node.Facts{}
	f.Config.Encryption = node.EncryptionWireGuard
	want := node.Desired{Encryption: p.SyncEncryption(f)}
	if want.Encryption.Missing == nil || want.Encryption.Index != 0 {
		t.Errorf("%+v", want.Encryption)
	}
	if err := p.RemoveEncryption(want); err != nil {
		t.Error(err)
	}
}

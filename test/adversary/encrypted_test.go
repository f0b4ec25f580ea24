package adversary

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
	"github.com/beeline-cni/beeline/test/netlab"
)

// TestEncryptedAttacks attacks from and on nodes that encrypt, and watches what the nodes send: no frame to the other node has an
// address of a pod.
func TestEncryptedAttacks(t *testing.T) {
	for _, e := range []netlab.Encryption{netlab.WireGuard, netlab.IPsec} {
		t.Run(e.Name, func(t *testing.T) {
			testenv.Root(t)
			if err := e.Missing(); err != nil {
				testenv.Missing(t, "not on this kernel: "+e.Name)
			}
			c := configuration{name: "attacks", flags: []string{"--flows=off", "--encryption=" + e.Name, allNodePorts}, tunnelled: true}
			l := testAttacks(t, []podKind{ofRange}, []configuration{c})
			time.Sleep(200 * time.Millisecond) // until the last frame is seen
			if plain := l.sent.Plain(); len(plain) > 0 {
				t.Errorf("%d packets of pods in plaintext, the first ones %v", len(plain), plain[:min(3, len(plain))])
			}
			if l.sent.Encrypted() == 0 {
				t.Error("no encrypted packet")
			}
		})
	}
}

// giveKeys gives the nodes what they need before their agents start.
func (l *lab) giveKeys(e netlab.Encryption) {
	l.t.Helper()
	for _, n := range l.nodes {
		var err error
		switch e {
		case netlab.WireGuard:
			n.object.Annotations, err = netlab.MakeKey(n.Node)
			l.writeObject(n.Name, n.object)
		case netlab.IPsec:
			err = netlab.WriteKeys(n.Node, 1)
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// joinEncrypted waits until nodes that encrypt reach each other so, and starts to watch what they send.
func (l *lab) joinEncrypted(e netlab.Encryption) {
	l.t.Helper()
	if e == (netlab.Encryption{}) {
		return
	}
	for _, n := range l.nodes {
		if e != netlab.IPsec {
			break
		}
		eventually(l.t, func() error {
			s, err := netlab.API(n.Node).Status(l.t.Context())
			if err != nil {
				return err
			}
			if s.Annotations[v1alpha1.AnnotationIPsec] == "" {
				return errors.New(n.Name + " announces nothing")
			}
			n.object.Annotations = s.Annotations
			l.writeObject(n.Name, n.object)
			return nil
		})
	}
	for _, n := range l.nodes {
		eventually(l.t, func() error {
			s, err := netlab.API(n.Node).Status(l.t.Context())
			if err != nil {
				return err
			}
			for _, other := range s.Nodes {
				if other.Path != e.Name {
					return fmt.Errorf("%s reaches %s by %s", n.Name, other.Name, other.Path)
				}
			}
			return nil
		})
	}
	if l.sent == nil {
		l.watchSent()
	}
}

// watchSent watches what the nodes send to each other. The client on the switch is no node.
func (l *lab) watchSent() {
	l.t.Helper()
	client := l.externalSender(1).mac
	if err := l.lab.Client().Do(func() error {
		all, err := net.Interfaces()
		for _, device := range all {
			if addresses, _ := device.Addrs(); len(addresses) > 1 && device.Flags&net.FlagLoopback == 0 {
				client = device.HardwareAddr
			}
		}
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	var ranges []netip.Prefix
	for _, n := range l.nodes {
		for _, text := range n.object.Spec.PodCIDRs {
			ranges = append(ranges, netip.MustParsePrefix(text))
		}
	}
	l.sent = capture.NewWire(ranges, client, l.externalSender(1).mac)
	l.t.Cleanup(l.sent.Stop)
	for _, n := range l.nodes {
		if err := l.sent.WatchSent(n.Netns, testbed.Uplink); err != nil {
			l.t.Fatal(err)
		}
	}
}

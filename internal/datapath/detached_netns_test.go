package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/device"
)

// takeOff does what somebody else may do who has the rights: it takes the programs of the uplink off, without the agent.
func (n *node) takeOff(t *testing.T) {
	t.Helper()
	n.do(t, func() error {
		for _, program := range n.d.programsOfUplink() {
			_, ingress, err := n.d.hookOf(program)
			if err != nil {
				return err
			}
			if !n.d.objects.tcx {
				if err := device.DeleteFilter(n.uplink.Index, ingress); err != nil {
					return err
				}
				continue
			}
			l, err := link.LoadPinnedLink(n.d.pinOf(Attachment{"eth0", program}), nil)
			if err != nil {
				return err
			}
			defer l.Close()
			if err := l.Detach(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Programs that somebody else has taken off are missed, and attaching brings them back.
func TestCheckMissesDetachedPrograms(t *testing.T) {
	for _, legacy := range attachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, options{cfg: ebpfRouting, legacy: legacy})
			check := func() (err error) {
				n.a.do(t, func() error { err = n.a.d.CheckUplink("eth0", n.a.uplink.Index); return nil })
				return err
			}
			if err := check(); err != nil {
				t.Fatal(err)
			}
			n.a.takeOff(t)
			if err := check(); err == nil {
				t.Error("programs that were taken off are not missed")
			}
			n.a.do(t, func() error { return n.a.d.AttachUplink("eth0", n.a.uplink.Index) })
			if err := check(); err != nil {
				t.Errorf("after attaching again: %v", err)
			}
			if got := n.a.running(t, n.a.uplink.Index); got != len(n.a.d.programsOfUplink()) {
				t.Errorf("%d programs run on the uplink", got)
			}
		})
	}
}

// CheckPod notices a program whose pin is gone too.
func TestCheckMissesPinnedProgram(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: Config{EBPFRouting: true, Services: true}})
	name, index := n.a1.pair.HostName, n.a1.pair.HostIndex
	n.a.do(t, func() error {
		if err := n.a.d.AttachPod(name, index); err != nil {
			return err
		}
		if err := n.a.d.CheckPod(name, index); err != nil {
			t.Errorf("with all programs: %v", err)
		}
		return n.a.d.takeOffOne(Attachment{name, bpfProgToPod})
	})
	n.a.do(t, func() error {
		if err := n.a.d.CheckPod(name, index); err == nil {
			t.Error("to_pod is gone and not missed")
		}
		if err := n.a.d.AttachPod(name, index); err != nil {
			return err
		}
		return n.a.d.CheckPod(name, index)
	})
}

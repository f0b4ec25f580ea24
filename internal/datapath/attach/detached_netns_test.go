package attach_test

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/device/clsact"
)

// takeOff detaches the programs of the uplink without the agent, as any privileged process can.
func takeOff(n *netlab.Node, t *testing.T) {
	t.Helper()
	n.Do(t, func() error {
		for _, program := range n.D.ProgramsOfUplink() {
			_, ingress, err := n.D.HookOf(program)
			if err != nil {
				return err
			}
			if !n.D.Objects.Tcx {
				if err := clsact.Delete(n.Uplink.Index, clsact.Hook{Ingress: ingress}); err != nil {
					return err
				}
				continue
			}
			l, err := link.LoadPinnedLink(n.D.PinOf(attach.Attachment{Device: "eth0", Program: program}), nil)
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

// Programs that another process has detached are reported missing, and attaching restores them.
func TestCheckMissesDetachedPrograms(t *testing.T) {
	for _, legacy := range harness.AttachForms(t) {
		t.Run(fmt.Sprintf("legacy=%t", legacy), func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting, Legacy: legacy})
			check := func() (err error) {
				n.A.Do(t, func() error { err = n.A.D.CheckUplink("eth0", n.A.Uplink.Index); return nil })
				return err
			}
			if err := check(); err != nil {
				t.Fatal(err)
			}
			takeOff(n.A, t)
			if err := check(); err == nil {
				t.Error("detached programs are not reported missing")
			}
			n.A.Do(t, func() error { return n.A.D.AttachUplink("eth0", n.A.Uplink.Index) })
			if err := check(); err != nil {
				t.Errorf("after attaching again: %v", err)
			}
			if got := running(n.A, t, n.A.Uplink.Index); got != len(n.A.D.ProgramsOfUplink()) {
				t.Errorf("%d programs run on the uplink", got)
			}
		})
	}
}

// CheckPod reports a program whose pin is gone, too.
func TestCheckMissesPinnedProgram(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Services: true}})
	name, index := n.A1.Pair.HostName, n.A1.Pair.HostIndex
	n.A.Do(t, func() error {
		if err := n.A.D.AttachPod(name, index); err != nil {
			return err
		}
		if err := n.A.D.CheckPod(name, index); err != nil {
			t.Errorf("with all programs: %v", err)
		}
		return n.A.D.TakeOffOne(attach.Attachment{Device: name, Program: bpf.ProgToPod})
	})
	n.A.Do(t, func() error {
		if err := n.A.D.CheckPod(name, index); err == nil {
			t.Error("to_pod is gone and not reported missing")
		}
		if err := n.A.D.AttachPod(name, index); err != nil {
			return err
		}
		return n.A.D.CheckPod(name, index)
	})
}

package attach_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// If a program cannot be attached to a pod's device, the other one is, and the error says which direction is not
// checked.
func TestPodErrorNamesDirections(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Services: true}})
	name, index := n.A1.Pair.HostName, n.A1.Pair.HostIndex
	n.A.Do(t, func() error { return n.A.D.AttachPod(name, index) })
	for _, broken := range []string{bpf.ProgFromPod, bpf.ProgToPod} {
		n.A.Do(t, func() error {
			pin, aside := n.A.D.PinOf(attach.Attachment{Device: name, Program: broken}), filepath.Join(n.A.D.Objects.Config.Root, "aside")
			inTheWay := filepath.Join(pin, "full")
			if err := errors.Join(os.Rename(pin, aside), os.MkdirAll(inTheWay, 0o700)); err != nil {
				return err
			}
			err := n.A.D.AttachPod(name, index)
			var of *attach.PodError
			if !errors.As(err, &of) || (of.Egress != nil) != (broken == bpf.ProgFromPod) || (of.Ingress != nil) != (broken == bpf.ProgToPod) {
				t.Errorf("without %s: error %v", broken, err)
			}
			if err := errors.Join(os.Remove(inTheWay), os.Remove(pin), os.Rename(aside, pin)); err != nil {
				return err
			}
			if err := n.A.D.AttachPod(name, index); err != nil {
				t.Errorf("with %s again: %v", broken, err)
			}
			return n.A.D.CheckPod(name, index)
		})
	}
	n.A.Do(t, func() error {
		var of *attach.PodError
		if err := n.A.D.AttachPod("none", 1<<30); !errors.As(err, &of) || of.Egress == nil || of.Ingress == nil {
			t.Errorf("at no device: %v", err)
		}
		return nil
	})
}

// An unknown program is another error than one that this configuration does not load.
func TestUnknownProgram(t *testing.T) {
	testenv.Root(t)
	d := harness.OpenTables(t, config.Datapath{Root: fixtures.Bpffs(t), EBPFRouting: true}, fixtures.TestLog(t))
	if _, _, err := d.HookOf("from_nowhere"); !errors.Is(err, attach.ErrUnknownProgram) {
		t.Errorf("unknown program: %v", err)
	}
	if _, _, err := d.HookOf(bpf.ProgToWire); err == nil || errors.Is(err, attach.ErrUnknownProgram) {
		t.Errorf("the error of a program that is not loaded is %v", err)
	}
}

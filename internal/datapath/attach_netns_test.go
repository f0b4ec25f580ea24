package datapath

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// A program that cannot be attached to a pod's device keeps the other one from nothing, and the error says whose packets are not judged.
func TestPodErrorNamesDirections(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: Config{EBPFRouting: true, Services: true}})
	name, index := n.a1.pair.HostName, n.a1.pair.HostIndex
	n.a.do(t, func() error { return n.a.d.AttachPod(name, index) })
	for _, broken := range []string{bpfProgFromPod, bpfProgToPod} {
		n.a.do(t, func() error {
			pin, aside := n.a.d.pinOf(Attachment{name, broken}), filepath.Join(n.a.d.objects.config.Root, "aside")
			inTheWay := filepath.Join(pin, "full")
			if err := errors.Join(os.Rename(pin, aside), os.MkdirAll(inTheWay, 0o700)); err != nil {
				return err
			}
			err := n.a.d.AttachPod(name, index)
			var of *PodError
			if !errors.As(err, &of) || (of.Egress != nil) != (broken == bpfProgFromPod) || (of.Ingress != nil) != (broken == bpfProgToPod) {
				t.Errorf("without %s: error %v", broken, err)
			}
			if err := errors.Join(os.Remove(inTheWay), os.Remove(pin), os.Rename(aside, pin)); err != nil {
				return err
			}
			if err := n.a.d.AttachPod(name, index); err != nil {
				t.Errorf("with %s again: %v", broken, err)
			}
			return n.a.d.CheckPod(name, index)
		})
	}
	n.a.do(t, func() error {
		var of *PodError
		if err := n.a.d.AttachPod("none", 1<<30); !errors.As(err, &of) || of.Egress == nil || of.Ingress == nil {
			t.Errorf("at no device: %v", err)
		}
		return nil
	})
}

// A program that the datapath does not have is another error than one that this configuration does not load.
func TestUnknownProgram(t *testing.T) {
	testenv.Root(t)
	d := adoptTables(t, Config{Root: bpffs(t), EBPFRouting: true}, testLog(t))
	if _, _, err := d.hookOf("from_nowhere"); !errors.Is(err, ErrUnknownProgram) {
		t.Errorf("unknown program: %v", err)
	}
	if _, _, err := d.hookOf(bpfProgToWire); err == nil || errors.Is(err, ErrUnknownProgram) {
		t.Errorf("the error of a program that is not loaded is %v", err)
	}
}

package attach

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// PodError says which programs could not be attached to a pod's device, by the packets that they judge.
type PodError struct {
	// Ingress is why the program for what the host's stack sends to the pod could not be attached, and Egress why that for what the pod
	// sends; nil for one that could.
	Ingress, Egress error
}

func (e *PodError) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap gives the reasons that there are.
func (e *PodError) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Egress, e.Ingress} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// programError is why a program is not as it should be at a device.
type programError struct {
	program string
	err     error
}

// podError makes a PodError; nil of nothing. What a pod's device should not have, and what could not be taken off, is in no packet's way
// out of the pod.
func podError(failed []programError) error {
	var e PodError
	for _, f := range failed {
		if f.program == bpf.ProgFromPod {
			e.Egress = f.err
		} else {
			e.Ingress = errors.Join(e.Ingress, f.err)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return &e
}

// joined makes one error; nil of nothing.
func joined(failed []programError) error {
	var errs []error
	for _, f := range failed {
		errs = append(errs, f.err)
	}
	return errors.Join(errs...)
}

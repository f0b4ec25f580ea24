package attach

import (
	"errors"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// PodError says which programs could not be attached to a pod's device, by the direction of traffic that they check.
type PodError struct {
	// Ingress is why the program for packets to the pod could not be attached, and Egress why the program for packets
	// from the pod could not; nil if it could.
	Ingress, Egress error
}

func (e *PodError) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap returns the reasons.
func (e *PodError) Unwrap() []error {
	var all []error
	for _, err := range []error{e.Egress, e.Ingress} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// programError is why a program could not be attached to a device or detached from it.
type programError struct {
	program string
	err     error
}

// podError makes a PodError; nil if nothing failed. Only from_pod checks egress: a failure of any other program does
// not affect packets from the pod.
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

// joined makes one error; nil if nothing failed.
func joined(failed []programError) error {
	var errs []error
	for _, f := range failed {
		errs = append(errs, f.err)
	}
	return errors.Join(errs...)
}

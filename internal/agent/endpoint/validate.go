package endpoint

import (
	"errors"
	"net"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/ipam"
)

// allocationError tells the plugin whether waiting helps.
func allocationError(err error) error {
	var exhausted *ipam.ExhaustedError
	switch {
	case errors.As(err, &exhausted):
		return agentapi.Errorf(agentapi.CodeExhausted, "%v", err)
	case errors.Is(err, ipam.ErrNoRange):
		return agentapi.Errorf(agentapi.CodeNotReady, "%v", err)
	case errors.Is(err, ipam.ErrHeld):
		return agentapi.Errorf(agentapi.CodeConflict, "%v", err)
	}
	return err
}

func validateAttachment(att agentapi.Attachment) error {
	if att.ContainerID == "" {
		return agentapi.Errorf(agentapi.CodeInvalid, "containerID: must not be empty")
	}
	if att.IfName == "" {
		return agentapi.Errorf(agentapi.CodeInvalid, "ifName: must not be empty")
	}
	return nil
}

// validate checks what a plugin of another version, or another client, might get wrong.
func validate(req agentapi.AddRequest) error {
	if err := validateAttachment(req.Attachment); err != nil {
		return err
	}
	if want := device.HostName(req.ContainerID, req.IfName); req.HostDevice != want {
		return agentapi.Errorf(agentapi.CodeInvalid, "hostDevice: is %q; for this container and interface it must be %q", req.HostDevice, want)
	}
	for field, mac := range map[string]string{"hostMAC": req.HostMAC, "podMAC": req.PodMAC} {
		if h, err := net.ParseMAC(mac); err != nil || len(h) != 6 {
			return agentapi.Errorf(agentapi.CodeInvalid, "%s: %q is not an Ethernet address", field, mac)
		}
	}
	if req.Macvlan != nil && req.Macvlan.NetnsCookie == 0 {
		return agentapi.Errorf(agentapi.CodeInvalid, "macvlan.netnsCookie: must not be 0")
	}
	return nil
}

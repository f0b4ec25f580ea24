package attach

import (
	"github.com/cilium/ebpf"
)

// HookOf gives a program and on which side of a device it belongs.
func (t *Attacher) HookOf(program string) (p *ebpf.Program, ingress bool, err error) {
	h, err := t.hook(program)
	return h.program, h.ingress, err
}

// PinOf gives the path of an attachment's pin.
func (t *Attacher) PinOf(a Attachment) string { return t.pin(a) }

// ProgramsOfPod are the programs that a pod's device has.
func (t *Attacher) ProgramsOfPod() []string { return t.podPrograms() }

// ProgramsOfUplink are the programs that an uplink has.
func (t *Attacher) ProgramsOfUplink() []string { return t.uplinkPrograms() }

// TakeOffOne takes one program off its device.
func (t *Attacher) TakeOffOne(a Attachment) error { return t.detach(a) }

// TakeOffSockets takes the programs off all sockets.
func TakeOffSockets(root string) error {
	_, err := detachSockets(root)
	return err
}

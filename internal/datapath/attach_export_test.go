package datapath

import "github.com/cilium/ebpf"

// hookOf gives a program and on which side of a device it belongs.
func (t *Attacher) hookOf(program string) (p *ebpf.Program, ingress bool, err error) {
	h, err := t.hook(program)
	return h.program, h.ingress, err
}

// pinOf gives the path of an attachment's pin.
func (t *Attacher) pinOf(a Attachment) string { return t.pin(a) }

// programsOfPod are the programs that a pod's device has.
func (t *Attacher) programsOfPod() []string { return t.podPrograms() }

// programsOfUplink are the programs that an uplink has.
func (t *Attacher) programsOfUplink() []string { return t.uplinkPrograms() }

// takeOffOne takes one program off its device.
func (t *Attacher) takeOffOne(a Attachment) error { return t.detach(a) }

// takeOffSockets takes the programs off all sockets.
func takeOffSockets(root string) error {
	_, err := detachSockets(root)
	return err
}

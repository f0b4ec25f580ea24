package attach

import (
	"github.com/cilium/ebpf"
)

func (t *Attacher) HookOf(program string) (p *ebpf.Program, ingress bool, err error) {
	h, err := t.hook(program)
	return h.program, h.ingress, err
}

func (t *Attacher) PinOf(a Attachment) string { return t.pin(a) }

func (t *Attacher) ProgramsOfPod() []string { return t.podPrograms() }

func (t *Attacher) ProgramsOfUplink() []string { return t.uplinkPrograms() }

func (t *Attacher) TakeOffOne(a Attachment) error { return t.detach(a) }

func TakeOffSockets(root string) error {
	_, err := detachSockets(root)
	return err
}

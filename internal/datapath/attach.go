package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/device"
)

// Attachment is one program on one device.
type Attachment struct {
	// Device is the name of the network device, Program that of the BPF program.
	Device  string
	Program string
}

// ErrUnknownProgram means that an attachment names a program that the datapath does not have.
var ErrUnknownProgram = errors.New("unknown program")

// hook is where a program belongs on its device.
type hook struct {
	program *ebpf.Program
	ingress bool
}

func (d *Datapath) hook(program string) (hook, error) {
	side, known := ingress[program]
	if !known {
		return hook{}, fmt.Errorf("%w: %s", ErrUnknownProgram, program)
	}
	p, err := d.program(program)
	return hook{p, side}, err
}

// AttachPod puts the programs without which no packet may pass on the host's end of a pod's device, replaces
// those of an earlier agent and takes off what is not needed any more. AttachPodRest is to follow. The error is a *PodError.
func (d *Datapath) AttachPod(name string, ifindex int) error {
	return podError(d.attachAll(name, ifindex, d.podPrograms(name)))
}

// AttachPodRest puts the other programs there, and again those of AttachPod: the others are those that only some connections need, and none
// of the first packets of a pod. Nobody has to wait for them when a pod is added. The error is a *PodError.
func (d *Datapath) AttachPodRest(name string, ifindex int) error {
	return podError(d.attachAll(name, ifindex, d.allPodPrograms()))
}

// AttachUplink does the same as AttachPod for an uplink.
func (d *Datapath) AttachUplink(name string, ifindex int) error {
	return joined(d.attachAll(name, ifindex, d.uplinkPrograms()))
}

// SetStackSends says whether the host's stack sends anything with eBPF routing that has to be translated at uplinks: what pods that
// go through it send, and answers of the node itself as a backend. Uplinks are to be attached again if it gives true: that is new.
func (d *Datapath) SetStackSends(sends bool) (changed bool) {
	return d.stackSends.Swap(sends) != sends
}

// AttachTunnel does the same for the VXLAN device, which has its programs with either routing: it drops what
// to_tunnel does not address.
func (d *Datapath) AttachTunnel(name string, ifindex int) error {
	return joined(d.attachAll(name, ifindex, tunnelPrograms))
}

var tunnelPrograms = []string{bpfProgToTunnel, bpfProgFromTunnel}

// allPodPrograms are the programs of a pod's device.
func (d *Datapath) allPodPrograms() []string {
	if !d.config.needsToPod() {
		return []string{bpfProgFromPod}
	}
	return []string{bpfProgToPod, bpfProgFromPod}
}

// podPrograms are those that a pod has to have before it sends, and what it has already. Each program counts when a pod is added: attaching
// waits for an RCU grace period (tcx_entry_sync, Linux 6.6), some 10 ms. With eBPF routing to_pod only translates back what the node
// itself answers as a backend, and that only where a socket did not find the Service.
func (d *Datapath) podPrograms(name string) []string {
	all := d.allPodPrograms()
	if !d.config.EBPFRouting {
		return all
	}
	return slices.DeleteFunc(all, func(program string) bool {
		_, err := os.Stat(d.pin(Attachment{name, program}))
		return program == bpfProgToPod && err != nil
	})
}

// uplinkPrograms are the programs of an uplink. With eBPF routing every packet between pods would meet to_wire
// for nothing (1 % of a request's time) where the stack sends nothing that concerns it.
func (d *Datapath) uplinkPrograms() (programs []string) {
	if d.config.EBPFRouting || d.config.translates() {
		programs = append(programs, bpfProgFromWire)
	}
	if d.config.translates() && (!d.config.EBPFRouting || d.stackSends.Load()) {
		programs = append(programs, bpfProgToWire)
	}
	return programs
}

// Detach takes all programs off a device. It is no error when the device or its programs are gone. The
// kernel lets go of a tcx link in the background: its program may run for some milliseconds more.
func (d *Datapath) Detach(name string) error {
	all, err := d.Attachments()
	for _, a := range all {
		if a.Device == name {
			err = errors.Join(err, d.detach(a))
		}
	}
	return err
}

// Attachments lists what is pinned, also by earlier agents and also on devices that are gone. On a kernel
// without tcx it lists what this datapath has attached or an earlier agent recorded.
func (d *Datapath) Attachments() ([]Attachment, error) {
	files, err := os.ReadDir(linkDir(d.config.Root))
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var all []Attachment
	for _, f := range files {
		name, program, ok := strings.Cut(f.Name(), pinSeparator)
		if !ok {
			return all, fmt.Errorf("list links: %s is not a link of ours", f.Name())
		}
		all = append(all, Attachment{strings.ReplaceAll(name, pinDot, "."), program})
	}
	return all, nil
}

// The name of a pin is that of the device, pinSeparator and that of the program. A BPF file system takes no
// '.' in names, as in eth0.100: it becomes pinDot. Names of devices hold neither white space nor ':'.
const (
	pinSeparator = " "
	pinDot       = ":"
)

func (d *Datapath) pin(a Attachment) string {
	return filepath.Join(linkDir(d.config.Root), strings.ReplaceAll(a.Device, ".", pinDot)+pinSeparator+a.Program)
}

// attachAll puts these programs on a device and takes off the others. One with which that fails does not keep it from being done with the
// others; failed are those, in their order.
func (d *Datapath) attachAll(name string, ifindex int, wanted []string) (failed []programError) {
	for _, program := range programNames {
		if program == bpfProgWireXdp {
			continue // not at tc: see Accelerate
		}
		a := Attachment{name, program}
		var err error
		if slices.Contains(wanted, program) {
			err = d.attach(a, ifindex)
		} else {
			err = d.detach(a)
		}
		if err != nil {
			failed = append(failed, programError{program, err})
		}
	}
	return failed
}

func (d *Datapath) attach(a Attachment, ifindex int) error {
	h, err := d.hook(a.Program)
	if err != nil {
		return err
	}
	if d.tcx {
		err = d.attachLink(a, ifindex, h)
	} else {
		err = d.attachFilter(a, ifindex, h)
	}
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", a.Program, a.Device, err)
	}
	return nil
}

// attachLink updates the pinned link of an earlier agent, or makes one. A link whose device is gone or has
// been replaced by another of the same name cannot be updated; its pin is removed first.
func (d *Datapath) attachLink(a Attachment, ifindex int, h hook) error {
	update := func(old link.Link) (bool, error) {
		if !linkIsOn(old, ifindex) {
			return false, nil
		}
		err := old.Update(h.program)
		if err != nil {
			d.log.Info("link cannot be updated and is made anew", "device", a.Device, "program", a.Program, "reason", err)
		}
		return err == nil, nil
	}
	attach := ebpf.AttachTCXEgress
	if h.ingress {
		attach = ebpf.AttachTCXIngress
	}
	return renewLink(d.pin(a), update, func() (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: h.program, Attach: attach, Anchor: link.Head()})
	})
}

func linkIsOn(l link.Link, ifindex int) bool {
	info, err := l.Info()
	if err != nil {
		return false
	}
	tcx := info.TCX()
	return tcx != nil && int(tcx.Ifindex) == ifindex
}

// attachFilter is the way of kernels before 6.6: a filter of the clsact qdisc, which the device itself
// keeps alive. The pin of the program only records the attachment.
func (d *Datapath) attachFilter(a Attachment, ifindex int, h hook) error {
	if err := device.ReplaceFilter(ifindex, h.ingress, h.program.FD(), a.Program); err != nil {
		return err
	}
	pin := d.pin(a)
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove record of earlier program: %w", err)
	}
	clone, err := h.program.Clone()
	if err != nil {
		return fmt.Errorf("clone program: %w", err)
	}
	defer clone.Close()
	if err := clone.Pin(pin); err != nil {
		return fmt.Errorf("record program: %w", err)
	}
	return nil
}

// detach takes a program off a device; one that is not there is no error.
func (d *Datapath) detach(a Attachment) error {
	if _, err := os.Stat(d.pin(a)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if !d.isLink(a) {
		side, known := ingress[a.Program]
		if !known {
			return fmt.Errorf("%w: %s", ErrUnknownProgram, a.Program)
		}
		if dev, err := net.InterfaceByName(a.Device); err == nil { // else the filters went with the device
			if err := device.DeleteFilter(dev.Index, side); err != nil {
				return fmt.Errorf("detach %s from %s: %w", a.Program, a.Device, err)
			}
		}
	}
	if err := os.Remove(d.pin(a)); err != nil {
		return fmt.Errorf("detach %s from %s: %w", a.Program, a.Device, err)
	}
	return nil
}

// detachNow does the same, and the program does not run any more when it returns. That takes some 10 ms of a tcx link: not for pods that
// somebody waits for.
func (d *Datapath) detachNow(a Attachment) error {
	if !d.isLink(a) {
		return d.detach(a)
	}
	if err := detachLink(d.pin(a)); err != nil {
		return fmt.Errorf("detach %s from %s: %w", a.Program, a.Device, err)
	}
	return nil
}

// isLink tells whether the pin of an attachment is a link, which has the program there; else there is a filter beside it.
func (d *Datapath) isLink(a Attachment) bool { return d.tcx || a.Program == bpfProgWireXdp }

// CheckPod reports the first program that is missing on the host's end of a pod's device, of those that AttachPod puts there.
func (d *Datapath) CheckPod(name string, ifindex int) error {
	return d.check(name, ifindex, d.podPrograms(name))
}

// CheckPodRest does the same after AttachPodRest.
func (d *Datapath) CheckPodRest(name string, ifindex int) error {
	return d.check(name, ifindex, d.allPodPrograms())
}

// CheckUplink does the same for an uplink.
func (d *Datapath) CheckUplink(name string, ifindex int) error {
	return errors.Join(d.check(name, ifindex, d.uplinkPrograms()), d.checkAcceleration(name, ifindex))
}

// CheckTunnel does the same for the VXLAN device.
func (d *Datapath) CheckTunnel(name string, ifindex int) error {
	return d.check(name, ifindex, tunnelPrograms)
}

func (d *Datapath) check(name string, ifindex int, programs []string) error {
	for _, program := range programs {
		h, err := d.hook(program)
		if err != nil {
			return err
		}
		if err := d.checkAttached(Attachment{name, program}, ifindex, h); err != nil {
			return fmt.Errorf("%s is not attached to %s: %w", program, name, err)
		}
	}
	return nil
}

func (d *Datapath) checkAttached(a Attachment, ifindex int, h hook) error {
	if !d.tcx {
		filters, err := device.Filters(ifindex)
		if err != nil {
			return err
		}
		for _, f := range filters {
			if f.Ingress == h.ingress && f.Name == a.Program {
				return nil
			}
		}
		return errors.New("its filter is gone")
	}
	l, err := link.LoadPinnedLink(d.pin(a), nil)
	if err != nil {
		return fmt.Errorf("open pinned link: %w", err)
	}
	defer l.Close()
	if !linkIsOn(l, ifindex) {
		return errors.New("its link has lost the device")
	}
	return nil
}

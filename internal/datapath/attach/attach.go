// Package attach attaches the loaded programs to devices and sockets, and detaches them. A pinned link outlives the
// agent. Its program is replaced by an atomic update, never by detaching.
package attach

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/device/clsact"
)

// Attachment is one program on one device.
type Attachment struct {
	Device  string
	Program string
}

// ErrUnknownProgram means that an attachment names a program that the datapath does not have.
var ErrUnknownProgram = errors.New("unknown program")

// Attacher attaches the loaded programs to devices and sockets, and detaches them. Calls for one device must not
// overlap.
type Attacher struct {
	objects *load.Objects
	// stackSends: see SetStackSends.
	stackSends atomic.Bool
}

// New returns an attacher of the programs of these objects.
func New(o *load.Objects) *Attacher { return &Attacher{objects: o} }

// hook is a program with its side of a device.
type hook struct {
	program *ebpf.Program
	ingress bool
}

func (t *Attacher) hook(program string) (hook, error) {
	side, known := load.Ingress[program]
	if !known {
		return hook{}, fmt.Errorf("%w: %s", ErrUnknownProgram, program)
	}
	p, err := t.objects.Program(program)
	return hook{p, side}, err
}

// AttachPod attaches all programs to the host end of a pod's device, replaces those of an earlier agent and detaches
// unneeded ones. The error is a *PodError.
func (t *Attacher) AttachPod(name string, ifindex int) error {
	return podError(t.attachAll(name, ifindex, t.podPrograms()))
}

// AttachUplink does the same for an uplink, which may have had another name.
func (t *Attacher) AttachUplink(name string, ifindex int) error {
	return errors.Join(t.takeRenamed(name, ifindex), joined(t.attachAll(name, ifindex, t.uplinkPrograms())))
}

// SetStackSends says whether, with eBPF routing, the host's stack sends packets that uplinks must translate: from
// pods that it forwards, and replies of the node itself as a backend. If it returns true, the value has changed:
// attach the uplinks again.
func (t *Attacher) SetStackSends(sends bool) (changed bool) {
	return t.stackSends.Swap(sends) != sends
}

// AttachTunnel does the same for the VXLAN device. It has its programs in both routing modes: they drop what
// to_tunnel does not address.
func (t *Attacher) AttachTunnel(name string, ifindex int) error {
	return joined(t.attachAll(name, ifindex, bpf.TunnelPrograms))
}

// AttachEncryption does the same for the device that encrypts.
func (t *Attacher) AttachEncryption(name string, ifindex int) error {
	return joined(t.attachAll(name, ifindex, t.objects.Config.Encryption.Programs()))
}

func (t *Attacher) podPrograms() []string {
	if !t.objects.Config.NeedsToPod() {
		return []string{bpf.ProgFromPod}
	}
	return []string{bpf.ProgToPod, bpf.ProgFromPod}
}

// uplinkPrograms are the programs of an uplink. With eBPF routing to_wire has no work if the host's stack sends
// nothing that needs translation; it would cost 1 % of a request's time. With encryption both drop plaintext.
func (t *Attacher) uplinkPrograms() (programs []string) {
	if t.objects.Config.NeedsFromWire() {
		programs = append(programs, bpf.ProgFromWire)
	}
	if t.objects.Config.StrictEncryption() || t.objects.Config.Translates() && (!t.objects.Config.EBPFRouting || t.stackSends.Load()) {
		programs = append(programs, bpf.ProgToWire)
	}
	return programs
}

// Detach detaches all programs from a device. It is no error if the device or its programs are gone. The kernel
// releases a tcx link in the background: its program may run for some milliseconds more.
func (t *Attacher) Detach(name string) error {
	all, err := t.Attachments()
	for _, a := range all {
		if a.Device == name {
			err = errors.Join(err, t.detach(a))
		}
	}
	return err
}

// Attachments lists what is pinned, including what earlier agents pinned and devices that are gone. Without tcx a pin
// records an attached filter.
func (t *Attacher) Attachments() ([]Attachment, error) {
	files, err := os.ReadDir(load.LinkDir(t.objects.Config.Root))
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var all []Attachment
	for _, f := range files {
		name, program, ok := strings.Cut(f.Name(), load.PinSeparator)
		if !ok {
			return all, fmt.Errorf("list links: unexpected name %s", f.Name())
		}
		all = append(all, Attachment{strings.ReplaceAll(name, load.PinDot, "."), program})
	}
	return all, nil
}

func (t *Attacher) pin(a Attachment) string {
	return filepath.Join(load.LinkDir(t.objects.Config.Root), strings.ReplaceAll(a.Device, ".", load.PinDot)+load.PinSeparator+a.Program)
}

// attachAll attaches these programs to a device and detaches all others. It continues after an error; failed lists
// the failures in order.
func (t *Attacher) attachAll(name string, ifindex int, wanted []string) (failed []programError) {
	for _, program := range bpf.ProgramNames {
		if program == bpf.ProgWireXdp {
			continue // attached by Accelerate
		}
		a := Attachment{name, program}
		var err error
		if slices.Contains(wanted, program) {
			err = t.attach(a, ifindex)
		} else {
			err = t.detach(a)
		}
		if err != nil {
			failed = append(failed, programError{program, err})
		}
	}
	return failed
}

func (t *Attacher) attach(a Attachment, ifindex int) error {
	h, err := t.hook(a.Program)
	if err != nil {
		return err
	}
	netkit, err := t.isNetkit(a.Program, ifindex)
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", a.Program, a.Device, err)
	}
	switch {
	case netkit:
		err = t.attachNetkit(a, ifindex, h)
	case t.objects.Tcx:
		err = t.attachLink(a, ifindex, h)
	default:
		err = t.attachFilter(a, ifindex, h)
	}
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", a.Program, a.Device, err)
	}
	return nil
}

// attachLink updates the pinned link of an earlier agent, or makes one. If the device is gone or another one has its
// name, the link cannot be updated, and its pin is removed first.
func (t *Attacher) attachLink(a Attachment, ifindex int, h hook) error {
	attach := ebpf.AttachTCXEgress
	if h.ingress {
		attach = ebpf.AttachTCXIngress
	}
	return renewLink(t.pin(a), t.update(a, h, func(old link.Link) bool { return linkIsAt(old, uint64(ifindex)) }), func() (link.Link, error) {
		anchor, done := t.anchor(a, ifindex, h)
		defer done()
		return link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: h.program, Attach: attach, Anchor: anchor})
	})
}

// anchor is the place of a program that is attached now: first, but after those of macvlan pods.
func (t *Attacher) anchor(a Attachment, ifindex int, h hook) (place link.Anchor, done func()) {
	for _, program := range bpf.MacvlanPrograms {
		if load.Ingress[program] != h.ingress || program == a.Program {
			continue
		}
		before, err := link.LoadPinnedLink(t.pin(Attachment{a.Device, program}), nil)
		if err != nil {
			continue
		}
		if linkIsAt(before, uint64(ifindex)) {
			return link.AfterLink(before), func() { before.Close() }
		}
		before.Close()
	}
	return link.Head(), func() {}
}

// update replaces the program of an earlier agent's link, if it is where it belongs.
func (t *Attacher) update(a Attachment, h hook, isAt func(link.Link) bool) func(old link.Link) (bool, error) {
	return func(old link.Link) (bool, error) {
		if !isAt(old) {
			return false, nil
		}
		err := old.Update(h.program)
		if err != nil {
			t.objects.Log.Info("link cannot be updated and is replaced", "device", a.Device, "program", a.Program, "reason", err)
		}
		return err == nil, nil
	}
}

// linkIsAt reports whether a link is at a device, by its index, or at a cgroup, by its id. It is at none if that was
// removed, since the kernel has then detached it.
func linkIsAt(l link.Link, target uint64) bool {
	info, err := l.Info()
	if err != nil {
		return false
	}
	switch tcx, xdp, cgroup := info.TCX(), info.XDP(), info.Cgroup(); {
	case tcx != nil:
		return uint64(tcx.Ifindex) == target
	case xdp != nil:
		return uint64(xdp.Ifindex) == target
	default:
		return cgroup != nil && cgroup.CgroupId == target
	}
}

// checkLink reports that a pinned link is not at its device or cgroup.
func checkLink(pin string, target uint64) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return fmt.Errorf("open pinned link: %w", err)
	}
	defer l.Close()
	if !linkIsAt(l, target) {
		return errors.New("its link is detached")
	}
	return nil
}

// attachFilter is for kernels before 6.6: the device keeps a filter of its clsact qdisc alive. The pin of the program
// only records the attachment.
func (t *Attacher) attachFilter(a Attachment, ifindex int, h hook) error {
	if err := clsact.Replace(ifindex, filterHook(a.Program, h.ingress), h.program.FD(), a.Program); err != nil {
		return err
	}
	pin := t.pin(a)
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

// filterHook is the place of a program's filter: those of macvlan pods come before the others of an uplink.
func filterHook(program string, ingress bool) clsact.Hook {
	return clsact.Hook{Ingress: ingress, First: slices.Contains(bpf.MacvlanPrograms, program)}
}

// detach detaches a program from a device. It is no error if it is not attached.
func (t *Attacher) detach(a Attachment) error {
	if _, err := os.Stat(t.pin(a)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if !t.isLink(a) {
		side, known := load.Ingress[a.Program]
		if !known {
			return fmt.Errorf("%w: %s", ErrUnknownProgram, a.Program)
		}
		if dev, err := net.InterfaceByName(a.Device); err == nil { // else the filters went with the device
			if err := clsact.Delete(dev.Index, filterHook(a.Program, side)); err != nil {
				return fmt.Errorf("detach %s from %s: %w", a.Program, a.Device, err)
			}
		}
	}
	if err := os.Remove(t.pin(a)); err != nil {
		return fmt.Errorf("detach %s from %s: %w", a.Program, a.Device, err)
	}
	return nil
}

// detachNow does the same, and the program does not run after it returns. For a tcx link that takes some 10 ms, too
// long for CNI calls.
func (t *Attacher) detachNow(a Attachment) error {
	if !t.isLink(a) {
		return t.detach(a)
	}
	if err := detachLink(t.pin(a)); err != nil {
		return fmt.Errorf("detach %s from %s: %w", a.Program, a.Device, err)
	}
	return nil
}

// isLink reports whether the pin of an attachment is a link; otherwise it is the record of a filter.
func (t *Attacher) isLink(a Attachment) bool { return t.objects.Tcx || a.Program == bpf.ProgWireXdp }

// CheckPod reports the first program that is missing on the host end of a pod's device.
func (t *Attacher) CheckPod(name string, ifindex int) error {
	return t.check(name, ifindex, t.podPrograms())
}

// CheckUplink does the same for an uplink.
func (t *Attacher) CheckUplink(name string, ifindex int) error {
	return errors.Join(t.check(name, ifindex, t.uplinkPrograms()), t.checkAcceleration(name, ifindex))
}

// CheckTunnel does the same for the VXLAN device.
func (t *Attacher) CheckTunnel(name string, ifindex int) error {
	return t.check(name, ifindex, bpf.TunnelPrograms)
}

// CheckEncryption does the same for the device that encrypts.
func (t *Attacher) CheckEncryption(name string, ifindex int) error {
	return t.check(name, ifindex, t.objects.Config.Encryption.Programs())
}

func (t *Attacher) check(name string, ifindex int, programs []string) error {
	for _, program := range programs {
		h, err := t.hook(program)
		if err != nil {
			return err
		}
		if err := t.checkAttached(Attachment{name, program}, ifindex, h); err != nil {
			return fmt.Errorf("%s is not attached to %s: %w", program, name, err)
		}
	}
	return nil
}

func (t *Attacher) checkAttached(a Attachment, ifindex int, h hook) error {
	if !t.objects.Tcx {
		filters, err := clsact.List(ifindex)
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
	if netkit, err := t.isNetkit(a.Program, ifindex); err != nil {
		return err
	} else if netkit {
		return checkNetkit(t.pin(a), ifindex)
	}
	return checkLink(t.pin(a), uint64(ifindex))
}

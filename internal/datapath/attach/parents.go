package attach

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// ErrMacvlan says that a parent has all programs but those of macvlan devices: their pods are to be closed, and no other.
var ErrMacvlan = errors.New("programs of macvlan devices")

// AttachParent is AttachUplink for an uplink that has macvlan devices of pods.
func (t *Attacher) AttachParent(name string, ifindex int) error {
	err := t.takeRenamed(name, ifindex)
	failed := t.attachAll(name, ifindex, t.parentPrograms())
	ofOthers := slices.ContainsFunc(failed, func(f programError) bool { return !slices.Contains(bpf.MacvlanPrograms, f.program) })
	if err == nil && len(failed) > 0 && !ofOthers {
		return fmt.Errorf("%w: %w", ErrMacvlan, joined(failed))
	}
	return errors.Join(err, joined(failed))
}

// LoadParent loads the programs that AttachParent attaches. The verifier takes half a second for them.
func (t *Attacher) LoadParent() (err error) {
	for _, name := range t.parentPrograms() {
		_, failed := t.objects.Program(name)
		err = errors.Join(err, failed)
	}
	return err
}

// CheckParent is CheckUplink for an uplink that has macvlan devices of pods.
func (t *Attacher) CheckParent(name string, ifindex int) error {
	return errors.Join(t.check(name, ifindex, t.parentPrograms()), t.checkAcceleration(name, ifindex))
}

func (t *Attacher) parentPrograms() []string {
	return append(t.uplinkPrograms(), bpf.MacvlanPrograms...)
}

// Parents gives the indexes of the devices to which an agent has attached the programs of macvlan devices, those too that have lost one.
func (t *Attacher) Parents() (indexes []int, err error) {
	all, err := t.Attachments()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if a.Program != bpf.ProgFromMacvlan {
			continue
		}
		if index := t.indexOf(a); index != 0 {
			indexes = append(indexes, index)
		}
	}
	return indexes, nil
}

// HasMacvlan reports whether pods may have macvlan devices.
func (t *Attacher) HasMacvlan() bool { return t.objects.Config.Macvlan }

// CheckMacvlan reports the first program of macvlan devices that is missing on their parent.
func (t *Attacher) CheckMacvlan(name string, ifindex int) error {
	return t.check(name, ifindex, bpf.MacvlanPrograms)
}

// indexOf gives the index of an attachment's device, which may have another name now; 0 if there is none.
func (t *Attacher) indexOf(a Attachment) int {
	if index := t.linkIndex(a); index != 0 {
		return index
	}
	if device, err := net.InterfaceByName(a.Device); err == nil {
		return device.Index
	}
	return 0
}

// linkIndex gives the index of the device that a tcx or XDP link is at; 0 if it is at none.
func (t *Attacher) linkIndex(a Attachment) int {
	if !t.isLink(a) {
		return 0
	}
	l, err := link.LoadPinnedLink(t.pin(a), nil)
	if err != nil {
		return 0
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0
	}
	if tcx := info.TCX(); tcx != nil {
		return int(tcx.Ifindex)
	}
	if xdp := info.XDP(); xdp != nil {
		return int(xdp.Ifindex)
	}
	return 0
}

// takeRenamed gives the pins of a device that has another name now that name: the kernel attaches no program twice.
func (t *Attacher) takeRenamed(name string, ifindex int) error {
	all, err := t.Attachments()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, a := range all {
		now := Attachment{name, a.Program}
		if a.Device == name || t.linkIndex(a) != ifindex || t.linkIndex(now) == ifindex {
			continue
		}
		if err := os.Rename(t.pin(a), t.pin(now)); err != nil {
			return fmt.Errorf("device %s is %s now: %w", a.Device, name, err)
		}
		t.objects.Log.Info("device renamed, its programs stay", "before", a.Device, "now", name, "program", a.Program)
	}
	return nil
}

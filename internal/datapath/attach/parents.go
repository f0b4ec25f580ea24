package attach

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

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

package clsact

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/devicetest"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// okProgram loads "r0 = 0; exit" as a classifier by the bare system call: only internal/datapath may use a
// BPF library.
func okProgram(t *testing.T) int {
	t.Helper()
	testenv.Root(t)
	instructions := []uint64{0xb7, 0x95}
	license := []byte("Apache-2.0\x00")
	// The kernel gets their addresses in a struct, where Go does not see that they are in use: their memory must not move or be freed.
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&instructions[0])
	pins.Pin(&license[0])
	attr := struct {
		kind, count           uint32
		instructions, license uint64
		logLevel, logSize     uint32
		log                   uint64
		kernVersion, flags    uint32
		name                  [16]byte
	}{
		kind: unix.BPF_PROG_TYPE_SCHED_CLS, count: uint32(len(instructions)),
		instructions: uint64(uintptr(unsafe.Pointer(&instructions[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		t.Fatalf("load a program: %v", errno)
	}
	t.Cleanup(func() { _ = unix.Close(int(fd)) })
	return int(fd)
}

func TestReplaceFilter(t *testing.T) {
	first, second := okProgram(t), okProgram(t)
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		up, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		list := func() []Filter {
			filters, err := List(up)
			if err != nil {
				t.Fatal(err)
			}
			return filters
		}
		if got := list(); len(got) != 0 {
			t.Errorf("filters on a new device: %v", got)
		}
		for _, ingress := range []bool{true, false} {
			if err := Delete(up, Hook{Ingress: ingress}); err != nil {
				t.Errorf("nothing to delete: %v", err)
			}
			if err := Replace(up, Hook{Ingress: ingress}, first, "from_pod"); err != nil {
				return err
			}
		}
		before := list()
		if err := Replace(up, Hook{Ingress: true}, second, "from_pod_2"); err != nil {
			return err
		}
		after := list()
		if len(before) != 2 || len(after) != 2 {
			t.Fatalf("filters before %v, after %v", before, after)
		}
		if after[0].Name != "from_pod_2" || after[0].ProgramID == before[0].ProgramID || after[0].ProgramID == 0 {
			t.Errorf("before %+v, after %+v", before[0], after[0])
		}
		if diff := cmp.Diff(before[1], after[1]); diff != "" {
			t.Errorf("the other direction changed: %s", diff)
		}
		link, err := netlink.LinkByIndex(up)
		if err != nil {
			return err
		}
		all, err := netlink.FilterList(link, netlink.HANDLE_MIN_INGRESS)
		if err != nil {
			return err
		}
		if len(all) != 1 {
			t.Errorf("%d filters at ingress, want 1", len(all))
		}
		for _, ingress := range []bool{true, false, false} {
			if err := Delete(up, Hook{Ingress: ingress}); err != nil {
				return err
			}
		}
		if got := list(); len(got) != 0 {
			t.Errorf("filters after deleting them: %v", got)
		}
		return nil
	})
}

func TestReplaceFilterLeavesOthersAlone(t *testing.T) {
	program := okProgram(t)
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		up, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		if err := Ensure(up); err != nil {
			return err
		}
		foreign := attrs(up, Hook{Ingress: true})
		foreign.Priority = 1
		if err := netlink.FilterAdd(&netlink.BpfFilter{FilterAttrs: foreign, Fd: program, Name: "foreign", DirectAction: true}); err != nil {
			return err
		}
		if err := Replace(up, Hook{Ingress: true}, program, "ours"); err != nil {
			return err
		}
		if got, err := List(up); err != nil || len(got) != 1 || got[0].Name != "ours" {
			t.Errorf("our filters: %v, error %v", got, err)
		}
		if err := Delete(up, Hook{Ingress: true}); err != nil {
			return err
		}
		link, err := netlink.LinkByIndex(up)
		if err != nil {
			return err
		}
		all, err := netlink.FilterList(link, netlink.HANDLE_MIN_INGRESS)
		if err != nil {
			return err
		}
		if len(all) != 1 || all[0].Attrs().Priority != 1 {
			t.Errorf("filters: %v", all)
		}
		return nil
	})
}

func TestReplaceFilterErrors(t *testing.T) {
	devicetest.Inside(t, devicetest.NewNode(t), func() error {
		up, err := devicetest.IndexOf("up0")
		if err != nil {
			return err
		}
		if err := Replace(up, Hook{Ingress: true}, -1, "from_pod"); err == nil || !strings.Contains(err.Error(), "attach from_pod to ingress") {
			t.Errorf("no program: %v", err)
		}
		if err := Replace(4711, Hook{Ingress: false}, -1, "to_pod"); err == nil || !strings.Contains(err.Error(), "clsact qdisc to device 4711") {
			t.Errorf("no device: %v", err)
		}
		if _, err := List(4711); err == nil {
			t.Error("filters of no device")
		}
		return Delete(4711, Hook{Ingress: true})
	})
}

// Package packetgen offers UDP frames to a device at rates that no socket reaches, and counts what becomes of them.
//
// The generator is an XDP program that BPF_PROG_TEST_RUN runs on live frames (Linux 5.18): the kernel hands it a
// buffer, it writes a frame into it and redirects it to one end of a veth pair. At the other end it arrives as from a
// network card, in a ring of 256 frames and without an skb. That end needs NAPI, which it has while GRO is on or an XDP
// program is attached to it; without, and when the ring is full, frames are lost, as they are on a card.
//
// The program reads the clock for every frame: a rate is kept inside of the kernel, with no system call between frames.
// Frames at a rate come in bursts, those of some 33 µs together, as a card with moderated interrupts delivers them.
package packetgen

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Generator makes frames at one device. It belongs to one goroutine.
type Generator struct {
	netns  testbed.Netns
	frames Frames
	offer  *ebpf.Program
	run    *ebpf.Variable
	state  *ebpf.Variable
}

// NewGenerator loads the program that makes frames and sends them from a device of the namespace.
// netns should have a CPU: that is where frames are made and, unless the other end's NAPI has a thread of its own,
// taken in.
func NewGenerator(netns testbed.Netns, device string, frames Frames) (*Generator, error) {
	index, err := deviceIndex(netns, device)
	if err != nil {
		return nil, err
	}
	spec, err := loadPacketgen()
	if err != nil {
		return nil, err
	}
	template, network, transport := frames.template()
	source := frames.Source.Addr().AsSlice()
	var words [templateLength / 8]uint64
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(template[8*i:])
	}
	err = set(spec, map[string]any{
		"template": words, "network_sum": network, "transport_sum": transport, "ipv6": !frames.Source.Addr().Is4(),
		"flows": uint32(frames.Flows), "ports": uint32(frames.Ports), "device": index,
		"first_address": binary.BigEndian.Uint32(source[len(source)-4:]), "first_port": frames.Source.Port(),
	})
	if err != nil {
		return nil, err
	}
	var loaded struct {
		Offer *ebpf.Program  `ebpf:"offer"`
		Run   *ebpf.Variable `ebpf:"run"`
		State *ebpf.Variable `ebpf:"state"`
	}
	if err := spec.LoadAndAssign(&loaded, nil); err != nil {
		return nil, fmt.Errorf("load packet generator: %w", err)
	}
	return &Generator{netns: netns, frames: frames, offer: loaded.Offer, run: loaded.Run, state: loaded.State}, nil
}

// FrameLength is that of each frame in bytes.
func (g *Generator) FrameLength() int { return g.frames.Length() }

// On moves the generator to another CPU.
func (g *Generator) On(cpu int) { g.netns = g.netns.On(cpu) }

// What a buffer costs at least, when the program makes a frame of it and when it does not. It is a bound, so that one
// system call lasts as long as the load: its end alone takes the kernel some 20 ms, and buffers are left over instead,
// which the program gives back at once.
const (
	frameCost = 100 * time.Nanosecond
	spareCost = 40 * time.Nanosecond
)

// Offer makes the load and returns when it is over, at the latest after twice its time. The context is asked between
// system calls only; its error comes with what was offered.
func (g *Generator) Offer(ctx context.Context, l Load) (Offered, error) {
	if err := errors.Join(g.run.Set(l.bounds()), g.state.Set(runState{})); err != nil {
		return Offered{}, fmt.Errorf("offer frames: %w", err)
	}
	var state runState
	err := g.netns.Do(func() error {
		data := make([]byte, g.frames.Length())
		start := time.Now()
		for {
			_, err := g.offer.Run(&ebpf.RunOptions{
				Data: data, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES,
				Repeat: l.buffers(state.Sent, time.Since(start)),
			})
			if err != nil {
				return fmt.Errorf("run packet generator: %w", err)
			}
			if err := g.state.Get(&state); err != nil {
				return fmt.Errorf("read packet generator: %w", err)
			}
			if time.Since(start) >= l.For || l.Count > 0 && state.Sent >= l.Count {
				return nil
			}
			if ctx.Err() != nil {
				l.For = time.Since(start)
				return ctx.Err()
			}
		}
	})
	return l.offered(state), err
}

// Close unloads the program.
func (g *Generator) Close() error { return g.offer.Close() }

// set gives the program's constants their values.
func set(spec *ebpf.CollectionSpec, values map[string]any) error {
	for name, value := range values {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("packet generator: set %s: %w", name, err)
		}
	}
	return nil
}

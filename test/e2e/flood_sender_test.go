package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// floodCPU sends floods, and so also runs the programs for their packets. Victims run on the other CPU, so that the
// tests measure tables, not the scheduler.
const (
	floodCPU  = 1
	victimCPU = 0
)

// floodBatch is the number of frames of a system call.
const floodBatch = 64

// flooder sends frames on a device at a steady rate, each of another flow.
type flooder struct {
	name     string
	netns    testbed.Netns
	fd       int
	from, to net.HardwareAddr
	// addresses are the sender's own, IPv4 first.
	addresses []netip.Addr
	random    *rand.Rand
}

// newFlooder opens a socket on a device. The frames have the destination MAC address to.
func newFlooder(of machine, device string, to net.HardwareAddr, seed uint64) (*flooder, error) {
	f := &flooder{name: of.name, netns: of.netns, to: to, addresses: of.addresses, random: rand.New(rand.NewPCG(seed, 1))}
	return f, of.netns.Do(func() error {
		link, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		f.from = link.HardwareAddr
		if f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(f.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return err
		}
		return unix.Bind(f.fd, &unix.SockaddrLinklayer{Ifindex: link.Index}) // no protocol: receives nothing
	})
}

func (f *flooder) close() { _ = unix.Close(f.fd) }

// packets makes the first packet of a flood. The next packets differ in the varying fields.
type packets struct {
	first  func(f *flooder, family int) []byte
	varies varying
}

// send floods until stop is closed, at most perSecond frames a second, and counts the frames that the device accepts.
func (f *flooder) send(perSecond int, stop <-chan struct{}, sent *atomic.Int64, kinds ...packets) error {
	batches := f.batches(kinds)
	return f.netns.On(floodCPU).Do(func() error {
		began := time.Now()
		for n := 0; ; {
			select {
			case <-stop:
				return nil
			default:
			}
			if n*floodBatch > int(time.Since(began).Seconds()*float64(perSecond)) {
				time.Sleep(100 * time.Microsecond)
				continue
			}
			taken, err := batches[n%len(batches)].send(f)
			if err != nil {
				return fmt.Errorf("send batch %d: %w", n, err)
			}
			sent.Add(int64(taken))
			n++
		}
	})
}

// batches prepares frames of all kinds and both families, in several batches, because some kinds choose among
// destinations at random.
func (f *flooder) batches(kinds []packets) (all []*batch) {
	const several = 4
	for range several {
		b := &batch{}
		for n := range floodBatch {
			kind, family := kinds[n/2%len(kinds)], n%2
			bytes := frame.Ethernet(f.to, f.from, frame.EtherType(f.addresses[family]), kind.first(f, family))
			b.frames = append(b.frames, template{bytes, varyingWords(bytes, kind.varies)})
		}
		b.point()
		all = append(all, b)
	}
	return all
}

// port returns a random client port.
func (f *flooder) port() uint16 { return uint16(1024 + f.random.IntN(1<<16-1024)) }

// within returns a random address of a client network.
func (f *flooder) within(family int) netip.Addr {
	if family == 0 {
		return netip.AddrFrom4([4]byte{198, 18, byte(f.random.Uint32()), byte(1 + f.random.IntN(254))})
	}
	a := testbed.ClientNetworkIPv6.Addr().As16()
	for i := 8; i < 16; i++ {
		a[i] = byte(f.random.Uint32())
	}
	return netip.AddrFrom16(a)
}

// udp is a datagram from one of the sender's ports.
func (f *flooder) udp(from, to netip.AddrPort, data []byte) []byte {
	return frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: unix.IPPROTO_UDP, Payload: frame.UDP(from, to, data)}.Packet()
}

// damagedUDP is a datagram with a wrong checksum: the network forwards it and the receiver's kernel drops it, so the
// server has no work with it.
func (f *flooder) damagedUDP(from, to netip.AddrPort) []byte {
	p := frame.UDP(from, to, []byte("?"))
	p[len(p)-1]++
	return frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: unix.IPPROTO_UDP, Payload: p}.Packet()
}

func (f *flooder) syn(from, to netip.AddrPort) []byte {
	s := frame.Segment{Flags: frame.SYN, Sequence: f.random.Uint32()}
	return frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: unix.IPPROTO_TCP, Payload: frame.TCP(from, to, s, nil)}.Packet()
}

// damagedSYN is a SYN with a wrong checksum.
func (f *flooder) damagedSYN(from, to netip.AddrPort) []byte {
	p := frame.TCP(from, to, frame.Segment{Flags: frame.SYN, Sequence: f.random.Uint32()}, nil)
	p[len(p)-1]++ // the urgent pointer, which the checksum covers
	return frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: unix.IPPROTO_TCP, Payload: p}.Packet()
}

// echo is an echo request.
func (f *flooder) echo(to netip.Addr) []byte {
	ip := frame.IP{Source: f.addresses[0], Destination: to, Protocol: unix.IPPROTO_ICMP}
	kind := uint8(echoRequestIPv4)
	if to.Is6() {
		ip.Source, ip.Protocol, kind = f.addresses[1], unix.IPPROTO_ICMPV6, echoRequestIPv6
	}
	ip.Payload = frame.ICMP(ip.Source, ip.Destination, kind, 0, f.random.Uint32(), nil)
	return ip.Packet()
}

// flooding is an active flood.
type flooding struct {
	stop  chan struct{}
	ended sync.WaitGroup
	sent  atomic.Int64
	err   error
	began time.Time
}

// start floods in the background.
func (f *flooder) start(perSecond int, kinds ...packets) *flooding {
	running := &flooding{stop: make(chan struct{}), began: time.Now()}
	running.ended.Go(func() { running.err = f.send(perSecond, running.stop, &running.sent, kinds...) })
	return running
}

// finish ends the flood and returns its number of packets, and packets per second.
func (r *flooding) finish() (sent, perSecond int, err error) {
	close(r.stop)
	r.ended.Wait()
	sent = int(r.sent.Load())
	return sent, int(float64(sent) / time.Since(r.began).Seconds()), r.err
}

// counter counts the work of a victim.
type counter struct {
	done, repeated, failed atomic.Int64
	mu                     sync.Mutex
	errs                   []error
}

// fail counts a failure and keeps the first few errors.
func (c *counter) fail(err error) {
	const kept = 3
	c.failed.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.errs) < kept {
		c.errs = append(c.errs, err)
	}
}

// take returns the counters and resets them.
func (c *counter) take() (done, repeated, failed int64, errs error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs = errors.Join(c.errs...)
	c.errs = nil
	return c.done.Swap(0), c.repeated.Swap(0), c.failed.Swap(0), errs
}

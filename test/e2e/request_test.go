package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
)

const (
	// requestGap is the time between two requests: 1000 a second, fewer on a busy machine, whether or not earlier ones
	// have replies.
	requestGap = time.Millisecond
	// replyTimeout is the timeout of a reply. It is long, because servers may wait for a CPU. A lost request still fails:
	// it is never sent again.
	replyTimeout = time.Minute
	// receiveBuffer is the size of receive buffers in bytes: the requests of a second need some 800 KB.
	receiveBuffer = 16 << 20
	// requestSize is the size of a request and of its reply in bytes; the first eight are its number, the next ones the marker.
	requestSize = 64
)

// requests is a loop of requests at a steady rate over one connection, TCP or UDP. Over UDP each lost packet is a failed
// request.
type requests struct {
	name     string
	client   io.ReadWriteCloser
	server   io.Closer
	stopping atomic.Bool
	ended    sync.WaitGroup

	mu sync.Mutex
	// sent has the time of each request, by number; zero after its reply.
	sent    []time.Time
	replies int
	slowest time.Duration
	late    int
	errs    []error
}

// startRequests starts a loop and its server, over "udp" or "tcp".
func startRequests(name, protocol string, from, to testbed.Netns, address netip.Addr) (*requests, error) {
	r := &requests{name: name}
	var err error
	if protocol == "udp" {
		err = r.openUDP(from, to, address)
	} else {
		err = r.openTCP(from, to, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.start()
	return r, nil
}

// askAt starts a loop to an echo server that runs already.
func askAt(name, protocol string, from testbed.Netns, to netip.AddrPort) (*requests, error) {
	r := &requests{name: name, server: io.NopCloser(nil)}
	err := from.Do(func() error {
		client, err := net.DialTimeout(protocol, to.String(), patience)
		if err != nil {
			return err
		}
		r.client = client
		if socket, ok := client.(*net.UDPConn); ok {
			return growReceiveBuffer(socket)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.start()
	return r, nil
}

func (r *requests) start() {
	r.ended.Add(1)
	go r.send()
	go r.listen()
}

func (r *requests) openTCP(from, to testbed.Netns, address netip.Addr) error {
	client, server, err := connect(from, to, address)
	if err != nil {
		return err
	}
	r.client, r.server = client, server
	go func() { _, _ = io.Copy(server, server) }() // its end shows at the client
	return nil
}

func (r *requests) openUDP(from, to testbed.Netns, address netip.Addr) error {
	var server net.PacketConn
	err := to.Do(func() (err error) {
		server, err = net.ListenPacket("udp", netip.AddrPortFrom(address, 0).String())
		return err
	})
	if err != nil {
		return err
	}
	r.server = server
	if err := growReceiveBuffer(server.(*net.UDPConn)); err != nil {
		return err
	}
	go echoPackets(server)
	return from.Do(func() error {
		client, err := net.Dial("udp", server.LocalAddr().String())
		if err != nil {
			return err
		}
		r.client = client
		return growReceiveBuffer(client.(*net.UDPConn))
	})
}

// growReceiveBuffer keeps packets from being lost while the socket's reader waits for a CPU.
func growReceiveBuffer(socket *net.UDPConn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	})
	return errors.Join(failed, err)
}

// echoPackets sends each packet back until the socket is closed.
func echoPackets(conn net.PacketConn) {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(buffer[:n], from) // the client notices a missing reply
	}
}

func (r *requests) send() {
	defer r.ended.Done()
	message := make([]byte, requestSize)
	copy(message[8:], capture.Marker)
	for !r.stopping.Load() {
		next := time.Now().Add(requestGap)
		r.mu.Lock()
		binary.BigEndian.PutUint64(message, uint64(len(r.sent)))
		r.sent = append(r.sent, time.Now())
		r.mu.Unlock()
		if _, err := r.client.Write(message); err != nil {
			r.fail(err)
		}
		time.Sleep(time.Until(next))
	}
}

func (r *requests) listen() {
	reply := make([]byte, requestSize)
	for {
		_, err := io.ReadFull(r.client, reply)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			r.fail(err)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return
			}
			time.Sleep(requestGap) // an ICMP error over UDP: the next reply may arrive
			continue
		}
		r.take(binary.BigEndian.Uint64(reply))
	}
}

func (r *requests) take(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number >= uint64(len(r.sent)) || r.sent[number].IsZero() {
		r.errs = append(r.errs, fmt.Errorf("reply to request %d, which is not pending", number))
		return
	}
	took := time.Since(r.sent[number])
	r.sent[number] = time.Time{}
	r.replies++
	r.slowest = max(r.slowest, took)
	if took > replyTimeout {
		r.late++
	}
}

func (r *requests) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// pending counts the requests without a reply.
func (r *requests) pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sent) - r.replies
}

// finish ends the loop, waits for the last replies, and returns an error if requests failed.
func (r *requests) finish() error { return r.finishWithin(replyTimeout) }

// finishWithin is finish with a limit for the wait.
func (r *requests) finishWithin(limit time.Duration) error {
	r.stopping.Store(true)
	r.ended.Wait()
	for begin := time.Now(); r.pending() > 0 && time.Since(begin) < limit; {
		time.Sleep(10 * time.Millisecond)
	}
	r.client.Close()
	r.server.Close()
	open := r.pending()
	r.mu.Lock()
	defer r.mu.Unlock()
	if open > 0 || r.late > 0 {
		r.errs = append(r.errs, fmt.Errorf("%d of %d requests without an answer, %d with a late one", open, len(r.sent), r.late))
	}
	if len(r.errs) > 0 {
		const enough = 5
		return fmt.Errorf("%s: %w", r.name, errors.Join(r.errs[max(0, len(r.errs)-enough):]...))
	}
	return nil
}

func (r *requests) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%s: %d requests, all with replies, the slowest in %s", r.name, r.replies, r.slowest.Round(10*time.Microsecond))
}

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
)

const (
	// requestGap is the time between two requests of a loop: 1000 each second, whether or not earlier
	// ones were answered. A busy machine makes fewer.
	requestGap = time.Millisecond
	// answerTime is how long an answer may take; a request that has none by then has failed. It is long, since those who
	// answer may have to wait for a processor: what is lost shows by what is never sent again.
	answerTime = time.Minute
	// receiveBuffer is how many bytes sockets keep for who reads them: thousands of requests, a second of which need some 800 KB.
	receiveBuffer = 16 << 20
	// requestSize is that of a request and of its answer, in bytes; the first eight are its number.
	requestSize = 64
)

// requests is a loop of requests at a steady rate over one connection, TCP or UDP. Over UDP nothing is sent
// twice, so every lost packet is a failed request.
type requests struct {
	name     string
	client   io.ReadWriteCloser
	server   io.Closer
	stopping atomic.Bool
	ended    sync.WaitGroup

	mu sync.Mutex
	// asked has the time of each request, by its number; zero when it is answered.
	asked    []time.Time
	answered int
	slowest  time.Duration
	late     int
	errs     []error
}

// startRequests begins to ask, over "udp" or "tcp".
func startRequests(name, protocol string, from, to testbed.Place, address netip.Addr) (*requests, error) {
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

// askAt begins to ask an echo that somebody else runs, at this address.
func askAt(name, protocol string, from testbed.Place, to netip.AddrPort) (*requests, error) {
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
	go r.ask()
	go r.listen()
}

func (r *requests) openTCP(from, to testbed.Place, address netip.Addr) error {
	client, server, err := connect(from, to, address)
	if err != nil {
		return err
	}
	r.client, r.server = client, server
	go func() { _, _ = io.Copy(server, server) }() // its end shows at the client
	return nil
}

func (r *requests) openUDP(from, to testbed.Place, address netip.Addr) error {
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

// growReceiveBuffer lets a socket keep what comes while its reader waits for a processor: that is not lost on the way.
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

// echoPackets answers every packet with itself until the socket is closed.
func echoPackets(conn net.PacketConn) {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(buffer[:n], from) // what is not sent is missed by the client
	}
}

func (r *requests) ask() {
	defer r.ended.Done()
	message := make([]byte, requestSize)
	for !r.stopping.Load() {
		next := time.Now().Add(requestGap)
		r.mu.Lock()
		binary.BigEndian.PutUint64(message, uint64(len(r.asked)))
		r.asked = append(r.asked, time.Now())
		r.mu.Unlock()
		if _, err := r.client.Write(message); err != nil {
			r.fail(err)
		}
		time.Sleep(time.Until(next))
	}
}

func (r *requests) listen() {
	answer := make([]byte, requestSize)
	for {
		_, err := io.ReadFull(r.client, answer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			r.fail(err)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return
			}
			time.Sleep(requestGap) // an ICMP error over UDP: the next answer may come
			continue
		}
		r.take(binary.BigEndian.Uint64(answer))
	}
}

func (r *requests) take(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number >= uint64(len(r.asked)) || r.asked[number].IsZero() {
		r.errs = append(r.errs, fmt.Errorf("answer to request %d, which is not open", number))
		return
	}
	took := time.Since(r.asked[number])
	r.asked[number] = time.Time{}
	r.answered++
	r.slowest = max(r.slowest, took)
	if took > answerTime {
		r.late++
	}
}

func (r *requests) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// pending counts the requests that have had no answer.
func (r *requests) pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked) - r.answered
}

// finish ends the loop, waits for the last answers, and says which requests failed.
func (r *requests) finish() error { return r.finishWithin(answerTime) }

// finishWithin does so and waits for so long.
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
		r.errs = append(r.errs, fmt.Errorf("%d of %d requests without an answer, %d answered too late", open, len(r.asked), r.late))
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
	return fmt.Sprintf("%s: %d requests, all answered, the slowest in %s", r.name, r.answered, r.slowest.Round(10*time.Microsecond))
}

package worker

import (
	"bufio"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// The client's worker tells the server's when the measured traffic begins and ends, so that both read their machine's
// CPU time at the same moment, and when halves of tests that wait for their own timers are to end. It says so over
// the measured path itself: a slower path, like the one through an API server, would move the window.
//
// The client begins with a line that is the token. The server answers with a greeting; every line that follows is a
// command, and every command but tests has an answer of one line of JSON.
const (
	commandCPU   = "cpu"   // → answer with CPU
	commandTests = "tests" // ends the server's halves of tests
	commandData  = "data"  // "data N", then N bytes → answer with Sum
)

// answer is one line of the server.
type answer struct {
	Seen  string         `json:"seen,omitempty"` // greeting: the client's address
	CPU   procstat.Ticks `json:"cpu"`
	At    time.Time      `json:"at,omitzero"`   // when CPU was read, by the server's clock
	Sum   uint32         `json:"sum,omitempty"` // CRC-32 of the data
	Error string         `json:"error,omitempty"`
}

// patience bounds what may take long only when something is wrong.
const patience = 5 * time.Second

// control is the server's side.
type control struct {
	token    string
	cpu      *int // of the servers
	servers  *workload.Servers
	listener net.Listener
	packets  *net.UDPConn // answers probes: see mtu.go
	done     sync.WaitGroup
	ctx      context.Context // ends the connections
	end      context.CancelFunc
}

func listenControl(ctx context.Context, netns testbed.Netns, s Serve, servers *workload.Servers) (c *control, err error) {
	c = &control{token: s.Token, cpu: s.CPU, servers: servers}
	at := netip.AddrPortFrom(s.Address, uint16(s.Control))
	if c.listener, err = netns.Listen(ctx, at); err != nil {
		return nil, fmt.Errorf("listen for the other end: %w", err)
	}
	err = netns.Do(func() error {
		c.packets, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		c.listener.Close()
		return nil, fmt.Errorf("listen for the other end: %w", err)
	}
	c.ctx, c.end = context.WithCancel(ctx)
	c.done.Go(c.accept)
	c.done.Go(c.answerProbes)
	return c, nil
}

// Close ends everything and waits for its end.
func (c *control) Close() error {
	c.end()
	err := errors.Join(c.listener.Close(), c.packets.Close())
	c.done.Wait()
	return err
}

func (c *control) accept() {
	for {
		conn, err := c.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of something that comes back
			continue
		}
		c.done.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(c.ctx, func() { conn.Close() })()
			_ = c.speak(conn) // a client that goes away knows
		})
	}
}

func (c *control) speak(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(patience))
	lines := bufio.NewReader(conn)
	token, err := lines.ReadString('\n')
	if err != nil || subtle.ConstantTimeCompare([]byte(strings.TrimSpace(token)), []byte(c.token)) != 1 {
		return errors.Join(errors.New("no token"), err)
	}
	_ = conn.SetDeadline(time.Time{}) // until one of the ends is closed
	out := json.NewEncoder(conn)
	seen := netip.MustParseAddrPort(conn.RemoteAddr().String()).Addr().Unmap()
	if err := out.Encode(answer{Seen: seen.String()}); err != nil {
		return err
	}
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		var a answer
		command, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch command {
		case commandTests:
			c.servers.EndTests()
			continue
		case commandCPU:
			if a.CPU, a.At, err = readCPU(c.cpu); err != nil {
				a.Error = err.Error()
			}
		case commandData:
			n, err := strconv.ParseInt(rest, 10, 64)
			if err != nil {
				return err
			}
			sum := crc32.NewIEEE()
			if _, err := io.CopyN(sum, lines, n); err != nil {
				return err
			}
			a.Sum = sum.Sum32()
		default:
			return fmt.Errorf("no command %q", command)
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// far is the other end, as the client's worker has it. It is a workload.Server.
type far struct {
	end     End
	conn    net.Conn
	answers *json.Decoder
	seen    string
	marks   int
	err     error
}

func dialControl(ctx context.Context, netns testbed.Netns, end End) (f *far, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f = &far{end: end}
	if f.conn, err = netns.Dial(ctx, netip.AddrPortFrom(end.Address, uint16(end.Control))); err != nil {
		return nil, fmt.Errorf("reach the server's worker: %w", err)
	}
	_ = f.conn.SetDeadline(time.Now().Add(patience))
	f.answers = json.NewDecoder(f.conn)
	var hello answer
	if _, err = fmt.Fprintln(f.conn, end.Token); err == nil {
		err = f.answers.Decode(&hello)
	}
	if err != nil {
		f.conn.Close()
		return nil, fmt.Errorf("greet the server's worker: %w", err)
	}
	_ = f.conn.SetDeadline(time.Time{})
	f.seen = hello.Seen
	return f, nil
}

func (f *far) Close() error { return f.conn.Close() }

// Target is where clients of workloads connect to.
func (f *far) Target() workload.Target { return f.end.Target }

// EndTests tells the server's worker to.
func (f *far) EndTests() { f.tell(commandTests) }

// mark has the server read its CPU time now, without waiting for it.
func (f *far) mark() {
	f.marks++
	f.tell(commandCPU)
}

func (f *far) tell(command string) {
	_ = f.conn.SetWriteDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintln(f.conn, command); err != nil {
		f.err = fmt.Errorf("tell the server's worker: %w", err)
	}
}

// passed returns the server's CPU time between its readings at the last two marks, and how long that was.
func (f *far) passed() (cpu procstat.Ticks, window time.Duration, err error) {
	if f.err != nil {
		return cpu, 0, f.err
	}
	if f.marks < 2 {
		return cpu, 0, fmt.Errorf("read the server's CPU time: %d marks, want 2", f.marks)
	}
	_ = f.conn.SetReadDeadline(time.Now().Add(patience))
	var before, after answer
	for ; f.marks > 0; f.marks-- {
		before, after = after, answer{}
		if err := f.answers.Decode(&after); err != nil {
			return cpu, 0, fmt.Errorf("read the server's CPU time: %w", err)
		}
		if after.Error != "" {
			return cpu, 0, fmt.Errorf("read the server's CPU time: %s", after.Error)
		}
	}
	return after.CPU.Minus(before.CPU), after.At.Sub(before.At), nil
}

// transfer proves that data arrives unaltered: enough to fill many packets of any MTU, so that a path that carries
// small packets only is found.
func (f *far) transfer() error {
	data := make([]byte, 512<<10)
	for i := range data {
		data[i] = byte(i>>8) ^ byte(i)
	}
	_ = f.conn.SetDeadline(time.Now().Add(patience))
	var a answer
	_, err := fmt.Fprintln(f.conn, commandData, len(data))
	if err == nil {
		_, err = f.conn.Write(data)
	}
	if err == nil {
		err = f.answers.Decode(&a)
	}
	if err != nil {
		return fmt.Errorf("send %d bytes: %w", len(data), err)
	}
	if a.Sum != crc32.ChecksumIEEE(data) {
		return fmt.Errorf("send %d bytes: they arrived altered", len(data))
	}
	return nil
}

package e2e

import (
	"net"
	"sync"
	"testing"
	"time"
)

// TestPodTakesNoPortsOfOthers has one pod send 2,500 one-shot queries a second to one external address, far more than
// there are ports: another pod of its node gets all replies, with and without the agent.
func TestPodTakesNoPortsOfOthers(t *testing.T) {
	t.Parallel()
	const queries, perSecond = 100, 2500
	w := newExternal(t, "--nat-ports=40000-41023", "--nat-max=4096", "--nat-pending-max=1024")
	other := w.addPod(w.here, "other")
	server, err := externalEcho(w.outside.netns, w.outside.addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, agent := range []string{"with", "without"} {
		if agent == "without" {
			w.kill(w.here)
		}
		stop, sent := make(chan struct{}), 0
		var flood sync.WaitGroup
		var floodErr error
		flood.Go(func() {
			floodErr = w.pod.netns.Do(func() error {
				to := server.LocalAddr().(*net.UDPAddr)
				for began := time.Now(); ; {
					select {
					case <-stop:
						return nil
					default:
					}
					for sent < int(time.Since(began).Seconds()*perSecond) {
						socket, err := net.DialUDP("udp", nil, to)
						if err != nil {
							return err
						}
						_, _ = socket.Write([]byte("?")) // fails after an ICMP error for a reply to a closed socket
						_ = socket.Close()
						sent++
					}
					time.Sleep(time.Millisecond)
				}
			})
		})
		time.Sleep(time.Second) // until all ports are in use
		lost := 0
		for range queries {
			socket, err := externalDial(other.Netns, server)
			if err != nil {
				t.Fatal(err)
			}
			_ = socket.SetDeadline(time.Now().Add(3 * time.Second))
			if _, _, err := externalRequest(socket, 1); err != nil {
				lost++
			}
			_ = socket.Close()
			time.Sleep(5 * time.Millisecond)
		}
		close(stop)
		flood.Wait()
		if floodErr != nil {
			t.Fatal(floodErr)
		}
		if lost > 0 {
			t.Errorf("%s the agent, another pod got no reply to %d of %d queries while one pod sent %d", agent, lost, queries, sent)
		}
		if sent < 2000 {
			t.Errorf("%s the agent: the first pod sent %d queries only, less than twice the number of ports", agent, sent)
		}
	}
}

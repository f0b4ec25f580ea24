package macvlan_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// A router asks who listens to groups (RFC 3810), and pods answer: a switch that follows the answers forwards solicitations for their
// addresses. What is no such query does not reach a pod, nor data behind one.
func TestMacvlanAnswersListenerQueries(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true}})
	pod := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0])
	router, external := fixtures.Addr("fe80::beef"), n.ExternalOnSwitch(6)
	allNodes := fwd.MAC{0x33, 0x33, 0, 0, 0, 1}
	query := func(kind byte, source, destination string) fixtures.Packet {
		const delay, robustness, interval = 1, 2, 125
		header := append([]byte{kind, 0, 0, 0, 0, delay, 0, 0}, make([]byte, 16)...) // of all groups
		p := fixtures.Eth(fixtures.Router, allNodes).Ipv6(fixtures.Addr(source), fixtures.Addr(destination)).Ttl(1).
			Raw(fixtures.ProtoICMPv6, append(header, robustness, interval, 0, 0)).RouterAlert()
		p.SumOffset = 2
		return p
	}
	const listenerQuery, echoRequest = 130, 128
	frames := capture(t, pod.Netns)
	asked, answered := counter(t, pod.Netns, "Icmp6InGroupMembQueries"), counter(t, pod.Netns, "Icmp6OutMLDv2Reports")
	echoes := counter(t, pod.Netns, "Icmp6InEchos")
	n.External.Send(t, "eth0",
		query(listenerQuery, external.String(), "ff02::1").Bytes(),
		query(listenerQuery, router.String(), pod.V6.String()).Bytes(),
		query(listenerQuery, router.String(), "ff02::1").Ttl(2).Bytes(),
		query(listenerQuery, router.String(), "ff02::1").Payload("with sources that it has not").Bytes(),
		query(echoRequest, router.String(), "ff02::1").Bytes(),
		append(query(listenerQuery, router.String(), "ff02::1").Bytes(), "the pod must not have this"...))
	for begin := time.Now(); counter(t, pod.Netns, "Icmp6OutMLDv2Reports") == answered; time.Sleep(time.Millisecond) {
		if time.Since(begin) > netlab.Patience {
			t.Fatalf("the pod does not answer; it received %d queries", counter(t, pod.Netns, "Icmp6InGroupMembQueries")-asked)
		}
	}
	if got := counter(t, pod.Netns, "Icmp6InGroupMembQueries") - asked; got != 1 {
		t.Errorf("the pod received %d queries, expected 1", got)
	}
	if got := counter(t, pod.Netns, "Icmp6InEchos"); got != echoes {
		t.Errorf("the pod received %d echo requests, %d before", got, echoes)
	}
	for _, f := range frames() {
		if bytes.Contains(f, []byte("must not")) || bytes.Contains(f, []byte("source")) {
			t.Errorf("the pod received %x", f)
		}
	}
	n.DropsNothing(t)
}

// counter is a counter of /proc/net/snmp6.
func counter(t *testing.T, of netlab.Netns, name string) (value int) {
	t.Helper()
	of.Do(t, func() error {
		all, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(all)) {
			if rest, ok := strings.CutPrefix(line, name+" "); ok {
				_, err := fmt.Sscan(rest, &value)
				return err
			}
		}
		return fmt.Errorf("no counter %s", name)
	})
	return value
}

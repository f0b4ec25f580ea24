package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
)

const (
	isAnswered  = uint32(bpfCtFlagCT_REPLIED)
	isTurned    = uint32(bpfCtFlagCT_REVERSED)
	hasFIN      = uint32(bpfCtFlagCT_FIN)
	hasOtherFIN = uint32(bpfCtFlagCT_REPLY_FIN)
	hasReset    = uint32(bpfCtFlagCT_RESET)
)

// sessionTables are the maps of sessions with the table that keeps them.
type sessionTables struct {
	*objects
	Sessions *Sessions
}

// openSessions opens the maps of sessions.
func openSessions(tb testing.TB) *sessionTables {
	tb.Helper()
	o := openMaps(tb, Config{Policy: true})
	s := newSessions(&o.maps, o.programs)
	if err := s.divide(); err != nil {
		tb.Fatal(err)
	}
	return &sessionTables{o, s}
}

// A session goes when it has been quiet for as long as its state lasts, and not a second earlier; whoever asks is told.
func TestSessionsExpire(t *testing.T) {
	const tcp, udp, sctp = uint8(cluster.TCP), uint8(cluster.UDP), uint8(cluster.SCTP)
	for _, c := range []struct {
		name     string
		protocol uint8
		flags    uint32
		lasts    time.Duration
		state    ConnectionState
	}{
		{"TCP established", tcp, isAnswered, 6 * time.Hour, ConnectionEstablished},
		{"TCP without an answer", tcp, 0, time.Minute, ConnectionOpening},
		{"TCP, who opened it has sent FIN", tcp, isAnswered | hasFIN, 4 * time.Minute, ConnectionClosing},
		{"TCP, the other end has sent FIN", tcp, isAnswered | hasOtherFIN, 4 * time.Minute, ConnectionClosing},
		{"TCP, both ends have sent FIN", tcp, isAnswered | hasFIN | hasOtherFIN, 10 * time.Second, ConnectionClosed},
		{"TCP refused", tcp, isAnswered | hasReset, 10 * time.Second, ConnectionClosed},
		{"TCP given up", tcp, hasReset, 10 * time.Second, ConnectionClosed},
		{"UDP", udp, isAnswered, 2 * time.Minute, ConnectionEstablished},
		{"UDP has no FIN", udp, isAnswered | hasFIN | hasReset, 2 * time.Minute, ConnectionEstablished},
		{"UDP without an answer", udp, 0, time.Minute, ConnectionOpening},
		{"SCTP", sctp, isAnswered, 2 * time.Minute, ConnectionEstablished},
		{"ICMP echo", uint8(cluster.ICMP), isAnswered, time.Minute, ConnectionEstablished},
		{"ICMPv6 echo", uint8(cluster.ICMPv6), isAnswered | isTurned, time.Minute, ConnectionEstablished},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openSessions(t)
			put := func(quiet time.Duration) Session {
				key := bpfTuple{
					Source: addressOf(podA.v4), Destination: addressOf(podB.v4), SourcePort: networkOrder(40000), DestinationPort: networkOrder(80),
					Protocol: c.protocol,
				}
				value := bpfCtEntry{
					Created: uint64(time.Hour), Seen: uint64(someTime - quiet), Packets: [2]uint64{1, 2}, Bytes: [2]uint64{3, 4}, Revision: 5,
					Ingress: 6, Egress: 7, Flags: c.flags,
				}
				if err := d.objects.maps.Conntrack.Put(key, value); err != nil {
					t.Fatal(err)
				}
				s := Session{
					Source: netip.AddrPortFrom(podA.v4, 40000), Destination: netip.AddrPortFrom(podB.v4, 80), Protocol: c.protocol, State: c.state,
					Opened: time.Hour, Seen: someTime - quiet, Packets: [2]uint64{1, 2}, Bytes: [2]uint64{3, 4}, Revision: 5, Ingress: 6, Egress: 7,
				}
				if c.flags&isTurned != 0 {
					s.Source, s.Destination = s.Destination, s.Source
				}
				return s
			}
			check := func(want []Session, wantAll []Session) {
				t.Helper()
				var told []Session
				if removed, err := d.Sessions.Expire(someTime, nil, func(s Session) { told = append(told, s) }); err != nil || removed != len(want) {
					t.Errorf("%d are removed: %v", removed, err)
				}
				if diff := cmp.Diff(want, told, compareEntries); diff != "" {
					t.Errorf("told (-wanted +got):\n%s", diff)
				}
				if diff := cmp.Diff([]SessionCount{{c.protocol, c.state, 1}}, d.Sessions.Counts()); diff != "" {
					t.Errorf("counts (-wanted +got):\n%s", diff)
				}
				var all []Session
				if _, err := d.Sessions.Expire(0, func(s Session) { all = append(all, s) }, nil); err != nil { // at the beginning of time nothing expires
					t.Fatal(err)
				}
				if diff := cmp.Diff(wantAll, all, compareEntries); diff != "" {
					t.Errorf("sessions (-wanted +kernel):\n%s", diff)
				}
			}
			early := put(c.lasts - time.Second)
			check(nil, []Session{early})
			check([]Session{put(c.lasts)}, nil)
		})
	}
}

// Nobody need listen, and a session that had a packet meanwhile stays.
func TestSessionsSeenMeanwhile(t *testing.T) {
	d := openSessions(t)
	for port := range uint16(100) {
		key := bpfTuple{Source: addressOf(podA.v4), Destination: addressOf(podB.v4), DestinationPort: networkOrder(port), Protocol: protoUDP}
		if err := d.objects.maps.Conntrack.Put(key, bpfCtEntry{}); err != nil {
			t.Fatal(err)
		}
	}
	first := true
	removed, err := d.Sessions.Expire(someTime, nil, func(s Session) {
		if !first {
			return
		}
		first = false
		for port := range uint16(100) { // all others have a packet while the first is told of
			key := bpfTuple{Source: addressOf(podA.v4), Destination: addressOf(podB.v4), DestinationPort: networkOrder(port), Protocol: protoUDP}
			if err := d.objects.maps.Conntrack.Put(key, bpfCtEntry{Seen: uint64(someTime)}); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil || removed != 1 {
		t.Errorf("%d are removed: %v", removed, err)
	}
	if removed, err := d.Sessions.Expire(2*someTime, nil, nil); err != nil || removed != 100 {
		t.Errorf("%d are removed: %v", removed, err)
	}
}

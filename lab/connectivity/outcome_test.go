package connectivity

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}

// namespace returns a new network namespace in which these commands ran.
func namespace(t *testing.T, commands ...string) testbed.Netns {
	t.Helper()
	netns := testbed.Netns{Path: testenv.NewNetns(t).Path()}
	for _, command := range commands {
		words := strings.Fields(command)
		if _, err := exec.LookPath(words[0]); err != nil {
			testenv.Missing(t, err.Error())
		}
		if _, err := netns.Output(t.Context(), words[0], words[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	return netns
}

// Without a route no packet is sent, so none is rejected.
func TestConnectWithoutRoute(t *testing.T) {
	const to = "192.0.2.9"
	for name, c := range map[string]struct {
		commands []string
		want     error
	}{
		"no route":    {nil, unix.ENETUNREACH},
		"unreachable": {[]string{"ip link set lo up", "ip route add unreachable 192.0.2.0/24"}, unix.EHOSTUNREACH},
		"prohibit":    {[]string{"ip link set lo up", "ip route add prohibit 192.0.2.0/24"}, unix.EACCES},
		"blackhole":   {[]string{"ip link set lo up", "ip route add blackhole 192.0.2.0/24"}, unix.EINVAL},
	} {
		t.Run(name, func(t *testing.T) {
			netns := namespace(t, c.commands...)
			for _, protocol := range protocols {
				if works, err := Connect(t.Context(), netns, netip.MustParseAddrPort(to+":7100"), protocol, false); works || !errors.Is(err, c.want) {
					t.Errorf("%s: connected %v, %v, want %v", protocol, works, err, c.want)
				}
			}
		})
	}
}

// If a network drops or rejects denied packets, the outcome is known: not connected.
func TestConnectToARejectingNode(t *testing.T) {
	to := netip.AddrPortFrom(netip.MustParseAddr("10.9.9.2"), first)
	rules := map[string]string{"DROP": "INPUT -j DROP", "DROP on the way out": "OUTPUT -j DROP"}
	for _, with := range []string{
		"icmp-net-unreachable", "icmp-host-unreachable", "icmp-port-unreachable", "icmp-proto-unreachable", "icmp-net-prohibited", "icmp-host-prohibited", "icmp-admin-prohibited",
	} {
		rules[with] = "INPUT -j REJECT --reject-with " + with
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chain, target, _ := strings.Cut(rule, " ")
			commands := []string{"ip link set lo up", "ip addr add 10.9.9.2/32 dev lo"}
			for _, protocol := range protocols {
				commands = append(commands, fmt.Sprintf("iptables -A %s -p %s --dport %d %s", chain, strings.ToLower(string(protocol)), first, target))
			}
			netns := namespace(t, commands...)
			end, err := Listen(t.Context(), netns, to.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			for _, protocol := range protocols {
				if works, err := Connect(t.Context(), netns, to, protocol, false); works || err != nil {
					t.Errorf("%s: connected %v, %v", protocol, works, err)
				}
			}
			if works, err := Connect(t.Context(), netns, netip.AddrPortFrom(to.Addr(), second), corev1.ProtocolTCP, true); !works || err != nil {
				t.Errorf("another port: connected %v, %v", works, err)
			}
		})
	}
	t.Run("no node has the address", func(t *testing.T) {
		netns := namespace(t, "ip link add v0 type veth peer name v1", "ip addr add 10.9.9.1/24 dev v0", "ip link set v0 up", "ip link set v1 up")
		for _, protocol := range protocols {
			if works, err := Connect(t.Context(), netns, to, protocol, false); works || err != nil {
				t.Errorf("%s: connected %v, %v", protocol, works, err)
			}
		}
	})
}

// Without a socket the outcome is unknown.
func TestConnectWithoutFiles(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	for _, protocol := range protocols {
		works, err := Connect(t.Context(), testbed.Netns{}, netip.MustParseAddrPort("127.0.7.5:7100"), protocol, false)
		if works || !errors.Is(err, unix.EMFILE) {
			t.Errorf("%s: connected %v, %v, want %v", protocol, works, err, unix.EMFILE)
		}
	}
}

// An established connection without data counts as the unexpected outcome.
func TestConnectToASilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.7.6:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	to := netip.MustParseAddrPort(listener.Addr().String())
	for _, expected := range []bool{allowed, denied} {
		if answered, err := Connect(t.Context(), testbed.Netns{}, to, corev1.ProtocolTCP, expected); answered == expected || err != nil {
			t.Errorf("expected %v: connected %v, %v", expected, answered, err)
		}
	}
}

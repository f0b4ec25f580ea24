package connectivity

import (
	"net/netip"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
)

func TestMain(m *testing.M) {
	patience = time.Second
	os.Exit(m.Run())
}

const tcp, udp = string(corev1.ProtocolTCP), string(corev1.ProtocolUDP)

// fakePods are addresses of this machine instead of pods.
type fakePods map[string]netip.Addr

func (c fakePods) address(name string) netip.Addr { return c[name] }

func here(string) testbed.Netns { return testbed.Netns{} }

// listen runs servers at an address until the returned function is called or the test ends.
func listen(t *testing.T, at netip.Addr) (end func()) {
	t.Helper()
	end, err := Listen(t.Context(), here(""), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return end
}

func TestRun(t *testing.T) {
	pods := fakePods{"works": netip.MustParseAddr("127.0.7.11"), "forbidden": netip.MustParseAddr("127.0.7.12"), "leaks": netip.MustParseAddr("127.0.7.13")}
	listen(t, pods["works"])
	forbidden := listen(t, pods["forbidden"])
	listen(t, pods["leaks"])
	checks := []result.Connection{
		{To: "works", Protocol: tcp, Port: first, Allowed: true}, {To: "works", Protocol: udp, Port: first, Allowed: true},
		{To: "forbidden", Protocol: tcp, Port: first}, {To: "forbidden", Protocol: udp, Port: first},
		{To: "leaks", Protocol: udp, Port: second},
	}
	outcomes, err := Run(t.Context(), checks[:4], here, pods.address, func() error { forbidden(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range outcomes {
		if !Right(a) || a.Connected != checks[i].Allowed {
			t.Errorf("%+v: %+v", checks[i], a)
		}
	}
	outcomes, err = Run(t.Context(), checks[4:], here, pods.address, func() error { return nil })
	if err != nil || !outcomes[0].Connected || outcomes[0].Unknown != "" {
		t.Errorf("without policies: %+v, %v", outcomes, err)
	}
}

// The outcome of a denied connection that fails without policies is unknown.
func TestDeniedNeedsAControl(t *testing.T) {
	pods := fakePods{"gone": netip.MustParseAddr("127.0.7.14")}
	enforced := false
	checks := []result.Connection{{To: "gone", Protocol: tcp, Port: first}}
	outcomes, err := Run(t.Context(), checks, here, pods.address, func() error { enforced = true; return nil })
	if err != nil || !enforced {
		t.Fatalf("enforced %v, %v", enforced, err)
	}
	if a := outcomes[0]; Right(a) || a.Unknown != silent {
		t.Errorf("a pod that never replies counts as denied: %+v", a)
	}
}

// An outcome that is wrong once is wrong, and one that is unknown once is not right.
func TestWorse(t *testing.T) {
	right, unknown, wrong := result.Connection{}, result.Connection{Unknown: silent}, result.Connection{Connected: true}
	for _, c := range []struct{ a, b, want result.Connection }{
		{right, right, right}, {right, unknown, unknown}, {unknown, right, unknown}, {unknown, wrong, wrong}, {wrong, unknown, wrong}, {wrong, right, wrong},
	} {
		if got := worse(c.a, c.b); got != c.want {
			t.Errorf("%+v and %+v: %+v", c.a, c.b, got)
		}
	}
}

// A pod whose first reply is late has a known outcome.
func TestOutcomesThatChange(t *testing.T) {
	pods := fakePods{"a": netip.MustParseAddr("127.0.7.3")}
	end := listen(t, pods["a"])
	again := make(chan func(), 1)
	checks := []result.Connection{{To: "a", Protocol: tcp, Port: first}}
	outcomes, err := Run(t.Context(), checks, here, pods.address, func() error {
		end()
		go func() {
			time.Sleep(refusedFor + pause/2)
			end, err := Listen(t.Context(), here(""), pods["a"])
			if err != nil {
				t.Error(err)
			}
			again <- end
		}()
		return nil
	})
	defer func() { (<-again)() }()
	if err != nil || !outcomes[0].Connected {
		t.Errorf("%v, %v", outcomes, err)
	}
}

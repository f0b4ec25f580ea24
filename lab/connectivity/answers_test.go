package connectivity

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/lab/testbed"
)

func TestMain(m *testing.M) {
	patience = time.Second
	os.Exit(m.Run())
}

// cast are addresses of this machine in the place of pods.
type cast map[string]netip.Addr

func (c cast) address(name string) netip.Addr { return c[name] }

func here(string) testbed.Place { return testbed.Place{CPU: testbed.AnyCPU} }

// listen answers at an address of the cast until the returned function, or the test, ends.
func listen(t *testing.T, at netip.Addr) (end func()) {
	t.Helper()
	end, err := Listen(t.Context(), here(""), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return end
}

func TestAnswers(t *testing.T) {
	pods := cast{"works": netip.MustParseAddr("127.0.7.11"), "forbidden": netip.MustParseAddr("127.0.7.12"), "leaks": netip.MustParseAddr("127.0.7.13")}
	listen(t, pods["works"])
	forbidden := listen(t, pods["forbidden"])
	listen(t, pods["leaks"])
	questions := []Question{
		{To: "works", Protocol: corev1.ProtocolTCP, Port: first, Want: true}, {To: "works", Protocol: corev1.ProtocolUDP, Port: first, Want: true},
		{To: "forbidden", Protocol: corev1.ProtocolTCP, Port: first}, {To: "forbidden", Protocol: corev1.ProtocolUDP, Port: first},
		{To: "leaks", Protocol: corev1.ProtocolUDP, Port: second},
	}
	answers, err := Answers(t.Context(), questions[:4], here, pods.address, func() error { forbidden(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if !a.Right(questions[i]) || a.Works != questions[i].Want {
			t.Errorf("%+v: %+v", questions[i], a)
		}
	}
	answers, err = Answers(t.Context(), questions[4:], here, pods.address, func() error { return nil })
	if err != nil || !answers[0].Works || answers[0].Unknown != nil {
		t.Errorf("what no policy stops: %+v, %v", answers, err)
	}
}

// A connection that must not work, and would not without policies either, shows nothing.
func TestForbiddenNeedsAControl(t *testing.T) {
	pods := cast{"gone": netip.MustParseAddr("127.0.7.14")}
	enforced := false
	questions := []Question{{To: "gone", Protocol: corev1.ProtocolTCP, Port: first}}
	answers, err := Answers(t.Context(), questions, here, pods.address, func() error { enforced = true; return nil })
	if err != nil || !enforced {
		t.Fatalf("enforced %v, %v", enforced, err)
	}
	if a := answers[0]; a.Right(questions[0]) || !errors.Is(a.Unknown, errSilent) {
		t.Errorf("a pod that never answered is taken for forbidden: %+v", a)
	}
}

// An answer that is wrong once is wrong, and one that is unknown once is not right.
func TestWorse(t *testing.T) {
	q := Question{Want: false}
	right, unknown, wrong := Answer{}, Answer{Unknown: errSilent}, Answer{Works: true}
	for _, c := range []struct{ a, b, want Answer }{
		{right, right, right}, {right, unknown, unknown}, {unknown, right, unknown}, {unknown, wrong, wrong}, {wrong, unknown, wrong}, {wrong, right, wrong},
	} {
		if got := worse(q, c.a, c.b); got != c.want {
			t.Errorf("%+v and %+v: %+v", c.a, c.b, got)
		}
	}
}

// What is silent when it is asked first and answers later is not believed to be silent.
func TestAnswersThatChange(t *testing.T) {
	pods := cast{"a": netip.MustParseAddr("127.0.7.3")}
	end := listen(t, pods["a"])
	again := make(chan func(), 1)
	questions := []Question{{To: "a", Protocol: corev1.ProtocolTCP, Port: first}}
	answers, err := Answers(t.Context(), questions, here, pods.address, func() error {
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
	if err != nil || !answers[0].Works {
		t.Errorf("%v, %v", answers, err)
	}
}

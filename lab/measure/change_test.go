package measure

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// A change that cannot be made is known at once, and what the client was asked before is no answer to the next change.
func TestChangeThatCannotBeMade(t *testing.T) {
	here := testbed.Place{CPU: testbed.AnyCPU}
	listener, err := convergence.Listen(t.Context(), here, netip.MustParseAddrPort("127.0.8.1:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	answers := netip.MustParseAddrPort(listener.Addr().String())
	silent := netip.AddrPortFrom(netip.MustParseAddr("127.0.8.2"), answers.Port())
	program, err := network.Program()
	if err != nil {
		t.Fatal(err)
	}
	client, err := convergence.Start(here, program)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	refused := errors.New("refused by the API server")
	began := time.Now()
	if _, err := timed(t.Context(), client, silent, convergence.Anybody, func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v", err, refused)
	}
	if took := time.Since(began); took > changeLimit/10 {
		t.Errorf("the error came after %v", took)
	}
	took, err := timed(t.Context(), client, answers, convergence.Anybody, func() error { return nil })
	if err != nil || took > changeLimit/10 {
		t.Errorf("the change after it: %v, %v", took, err)
	}
}

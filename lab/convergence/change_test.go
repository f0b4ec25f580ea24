package convergence

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"
)

// TestMain runs the connecting client if a test starts this program for it.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Command {
		if err := Answer(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A failed change returns its error at once, and the client's reply to it is not taken for the next change's.
func TestChangeThatFails(t *testing.T) {
	listener, err := Listen(t.Context(), here, netip.MustParseAddrPort("127.0.8.1:0"), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	answers := netip.MustParseAddrPort(listener.Addr().String())
	silent := netip.AddrPortFrom(netip.MustParseAddr("127.0.8.2"), answers.Port())
	client, err := Start(here)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	refused := errors.New("refused by the API server")
	began := time.Now()
	if _, err := Time(t.Context(), client, silent, AnyBackend, func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v", err, refused)
	}
	if took := time.Since(began); took > ChangeLimit/10 {
		t.Errorf("the error came after %v", took)
	}
	took, err := Time(t.Context(), client, answers, AnyBackend, func() error { return nil })
	if err != nil || took > ChangeLimit/10 {
		t.Errorf("the change after it: %v, %v", took, err)
	}
}

package apiserver

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// dialledKept bounds how many addresses of the API server are kept, newest first: a name may resolve to several, and
// to others later.
const dialledKept = 16

// dialled are the addresses at which connections to the API server were tried.
type dialled struct {
	// timeout of one attempt; 0 is that of client-go.
	timeout time.Duration

	mu  sync.Mutex
	all []netip.AddrPort
}

// newDialled starts with the address in a server's URL.
func newDialled(host string) *dialled {
	d := &dialled{}
	d.expect(host)
	return d
}

// expect notes the address in a server's URL, if the URL has an address and not a name.
func (d *dialled) expect(host string) {
	if u, _, err := rest.DefaultServerURL(host, "", schema.GroupVersion{}, true); err == nil {
		port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		d.note(net.JoinHostPort(u.Hostname(), port))
	}
}

// dial connects to the API server. It notes each resolved address before it sends anything. A socket's peer address
// would not do: for the address of a Service it is a backend.
func (d *dialled) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: cmp.Or(d.timeout, 30*time.Second), KeepAlive: 30 * time.Second} // as client-go's
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		d.note(address)
		return nil
	}
	return dialer.DialContext(ctx, network, address)
}

func (d *dialled) note(address string) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return
	}
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.all, at) {
		return
	}
	if len(d.all) == dialledKept {
		d.all = slices.Delete(d.all, 0, 1)
	}
	d.all = append(d.all, at)
}

// Addresses are those at which connections to the API server were tried, sorted.
func (s *Source) Addresses() []netip.AddrPort {
	d := s.connection.dialled
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Clone(d.all)
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

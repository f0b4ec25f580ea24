package apiserver

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
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

// expect notes the addresses in a list of server URLs before the first request, and shortens the dial timeout of
// each.
func (d *dialled) expect(list string) error {
	servers, err := Servers(list)
	if err != nil {
		return err
	}
	if len(servers) > 1 {
		d.timeout = dialTime
	}
	for _, s := range servers {
		for _, addr := range newDialled(s.String()).all {
			d.note(addr.String())
		}
	}
	return nil
}

// newDialled starts with the address in a server's URL, if the URL has an address and not a name.
func newDialled(host string) *dialled {
	d := &dialled{}
	u, err := url.Parse(host)
	if err != nil || u.Host == "" { // as client-go takes a host without a scheme
		u = &url.URL{Scheme: "https", Host: host}
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80"}[u.Scheme]
	}
	if port == "" {
		port = "443"
	}
	d.note(net.JoinHostPort(u.Hostname(), port))
	return d
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
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return
	}
	addr, err := netip.ParseAddr(host)
	number, err2 := strconv.ParseUint(port, 10, 16)
	if err != nil || err2 != nil {
		return
	}
	at := netip.AddrPortFrom(addr.Unmap().WithZone(""), uint16(number))
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

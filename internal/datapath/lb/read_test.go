package lb

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/service"
)

// The backends of an earlier agent are found, each once, with the protocol of their frontends.
func TestServicesBackends(t *testing.T) {
	d := openServices(t, config.Datapath{})
	web := fixtures.NodePort(fixtures.PortNamed("web", fixtures.Addrs(t, "10.1.1.2:80"), "10.96.0.1:80", "192.0.2.1:30080"))
	dns := fixtures.PortNamed("dns", fixtures.Addrs(t, "10.1.1.2:80"), "10.96.0.2:80")
	dns.Entries[0].Frontend.Protocol = cluster.UDP
	if _, err := d.Services.Sync([]service.Port{web, dns}); err != nil {
		t.Fatal(err)
	}
	got, err := New(&d.Objects.Maps, 0).Backends()
	has := map[service.Backend]bool{}
	for _, b := range got {
		has[b] = true
	}
	at := web.Entries[0].Internal.Addresses[0]
	if err != nil || len(got) != 2 || !has[service.Backend{Address: at, Protocol: cluster.TCP}] || !has[service.Backend{Address: at, Protocol: cluster.UDP}] {
		t.Errorf("got %v, %v", got, err)
	}
}

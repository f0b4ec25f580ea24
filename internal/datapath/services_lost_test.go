package datapath

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
)

// The backends of an earlier agent are found, each once, with the protocol of their frontends.
func TestServicesBackends(t *testing.T) {
	d := openServices(t, Config{})
	web := nodePort(portNamed("web", addrs(t, "10.1.1.2:80"), "10.96.0.1:80", "192.0.2.1:30080"))
	dns := portNamed("dns", addrs(t, "10.1.1.2:80"), "10.96.0.2:80")
	dns.Entries[0].Frontend.Protocol = cluster.UDP
	if _, err := d.Services.Sync([]service.Port{web, dns}); err != nil {
		t.Fatal(err)
	}
	got, err := newServices(&d.objects.maps, 0).Backends()
	has := map[service.Backend]bool{}
	for _, b := range got {
		has[b] = true
	}
	at := web.Entries[0].Inside.Addresses[0]
	if err != nil || len(got) != 2 || !has[service.Backend{Address: at, Protocol: cluster.TCP}] || !has[service.Backend{Address: at, Protocol: cluster.UDP}] {
		t.Errorf("got %v, %v", got, err)
	}
}

// Only where programs of an earlier agent have Services that the new tables lack is there anything to wait for.
func TestServicesLost(t *testing.T) {
	for name, c := range map[string]struct {
		fresh         []string
		resized, link bool
		want          bool
	}{
		"adopted":               {nil, false, true, false},
		"another layout":        {[]string{bpfMapBackends, bpfMapServices}, false, true, true},
		"another size":          {[]string{bpfMapServices}, true, true, false},
		"a fresh node":          {[]string{bpfMapBackends, bpfMapServices}, false, false, false},
		"something else is new": {[]string{bpfMapRoutes}, false, true, false},
	} {
		o := &objects{config: Config{Root: t.TempDir()}, fresh: c.fresh, resized: map[string]*ebpf.Map{}}
		d := Assemble(o)
		if c.resized {
			o.resized[bpfMapServices] = &ebpf.Map{}
		}
		if err := os.MkdirAll(linkDir(o.config.Root), 0o700); err != nil {
			t.Fatal(err)
		}
		if c.link {
			if err := os.WriteFile(filepath.Join(linkDir(o.config.Root), "bl1"+pinSeparator+bpfProgFromPod), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.ServicesLost(); err != nil || got != c.want {
			t.Errorf("%s: %t, %v; want %t", name, got, err, c.want)
		}
	}
}

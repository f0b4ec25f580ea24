package datapath

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
)

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
		d := &Datapath{config: Config{Root: t.TempDir()}, fresh: c.fresh, resized: map[string]*ebpf.Map{}}
		if c.resized {
			d.resized[bpfMapServices] = &ebpf.Map{}
		}
		if err := os.MkdirAll(linkDir(d.config.Root), 0o700); err != nil {
			t.Fatal(err)
		}
		if c.link {
			if err := os.WriteFile(filepath.Join(linkDir(d.config.Root), "bl1"+pinSeparator+bpfProgFromPod), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.ServicesLost(); err != nil || got != c.want {
			t.Errorf("%s: %t, %v; want %t", name, got, err, c.want)
		}
	}
}

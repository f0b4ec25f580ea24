package datapath_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

// ServicesLost is true only if programs of an earlier agent are attached and the new Service tables start empty.
func TestServicesLost(t *testing.T) {
	for name, c := range map[string]struct {
		fresh         []string
		resized, link bool
		want          bool
	}{
		"adopted":               {nil, false, true, false},
		"another layout":        {[]string{bpf.MapBackends, bpf.MapServices}, false, true, true},
		"another size":          {[]string{bpf.MapServices}, true, true, false},
		"a fresh node":          {[]string{bpf.MapBackends, bpf.MapServices}, false, false, false},
		"something else is new": {[]string{bpf.MapRoutes}, false, true, false},
	} {
		o := &load.Objects{Config: config.Datapath{Root: t.TempDir()}, Fresh: c.fresh, Resized: map[string]*ebpf.Map{}}
		d := datapath.Assemble(o)
		if c.resized {
			o.Resized[bpf.MapServices] = &ebpf.Map{}
		}
		if err := os.MkdirAll(load.LinkDir(o.Config.Root), 0o700); err != nil {
			t.Fatal(err)
		}
		if c.link {
			if err := os.WriteFile(filepath.Join(load.LinkDir(o.Config.Root), "bl1"+load.PinSeparator+bpf.ProgFromPod), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := d.ServicesLost(); err != nil || got != c.want {
			t.Errorf("%s: %t, %v; want %t", name, got, err, c.want)
		}
	}
}

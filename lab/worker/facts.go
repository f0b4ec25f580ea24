package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/machine"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/prometheus/procfs"
)

// proxyMode is where kube-proxy says its mode, on its node only.
const proxyMode = "http://127.0.0.1:10249/proxyMode"

func facts(ctx context.Context, netns testbed.Netns, ask Ask) *Facts {
	f := &Facts{Version: Version, Environment: machine.Describe(ctx)}
	machine.DescribeNetns(&f.Environment, netns)
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		f.Boot = strings.TrimSpace(string(id))
	}
	f.Devices = devices(netns)
	if ask.Proxy {
		mode, err := askProxy(ctx, proxyMode)
		if err != nil {
			f.NoProxy = err.Error()
		}
		f.Proxy = mode
	}
	return f
}

// devices reads the names from /proc, because /sys/class/net is that of the namespace it was mounted in.
func devices(netns testbed.Netns) []string {
	var names []string
	_ = netns.Do(func() error {
		fs, err := procfs.NewFS("/proc/thread-self")
		if err != nil {
			return err
		}
		devices, err := fs.NetDev()
		names = slices.Sorted(maps.Keys(devices))
		return err
	})
	return names
}

// askProxy returns the mode: one word.
func askProxy(ctx context.Context, url string) (mode string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("ask kube-proxy for its mode: %w", err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64))
	if err != nil {
		return "", err
	}
	mode = strings.TrimSpace(string(body))
	if response.StatusCode != http.StatusOK || mode == "" || strings.ContainsAny(mode, " \n<") {
		return "", errors.New(response.Status)
	}
	return mode, nil
}

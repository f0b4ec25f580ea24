package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// raisedSysctls are limits of the whole machine that a cluster can reach, with their required minimum. Other settings of
// the machine do not change, see maskedSysctls of package machine.
var raisedSysctls = map[string]int{
	"fs/inotify/max_user_instances": 1024,
}

func sysctlPath(name string) string { return filepath.Join("/proc/sys", name) }

// lowSysctls returns the current values of the limits that are too low.
func lowSysctls() (map[string]string, error) {
	low := map[string]string{}
	for name, want := range raisedSysctls {
		data, err := os.ReadFile(sysctlPath(name))
		if err != nil {
			return nil, err
		}
		value := strings.TrimSpace(string(data))
		if n, err := strconv.Atoi(value); err != nil || n < want {
			low[name] = value
		}
	}
	return low, nil
}

func raiseSysctls(low map[string]string) error {
	for name := range low {
		if err := os.WriteFile(sysctlPath(name), []byte(strconv.Itoa(raisedSysctls[name])), 0); err != nil {
			return fmt.Errorf("raise sysctl %s: %w", name, err)
		}
	}
	return nil
}

func restoreSysctls(originals map[string]string) error {
	for name, value := range originals {
		if err := os.WriteFile(sysctlPath(name), []byte(value), 0); err != nil {
			return fmt.Errorf("restore sysctl %s: %w", name, err)
		}
	}
	return nil
}

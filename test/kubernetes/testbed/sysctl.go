package testbed

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// instances is the one limit of the whole machine that a cluster can reach. Other settings of the machine do not change, see
// machine/boot.sh.
const instances, enoughInstances = "/proc/sys/fs/inotify/max_user_instances", 1024

// lowInstances returns the current value of the limit; empty if it is high enough.
func lowInstances() (string, error) {
	data, err := os.ReadFile(instances)
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(data))
	if n, err := strconv.Atoi(value); err == nil && n >= enoughInstances {
		return "", nil
	}
	return value, nil
}

// setInstances sets the limit, unless the value is empty.
func setInstances(value string) error {
	if value == "" {
		return nil
	}
	if err := os.WriteFile(instances, []byte(value), 0); err != nil {
		return fmt.Errorf("set limit of inotify instances: %w", err)
	}
	return nil
}

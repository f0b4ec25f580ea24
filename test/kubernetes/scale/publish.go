package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/machine"
)

// heading precedes the figures in a page.
const heading = "## Figures\n"

// publish replaces the figures in a page.
func publish(file, text string) error {
	page, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	before, _, _ := strings.Cut(string(page), heading)
	return os.WriteFile(file, []byte(before+heading+"\n"+text), 0o644)
}

// describe says where, when and on what the run was made.
func describe(ctx context.Context) string {
	e := machine.Describe(ctx)
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return fmt.Sprintf("Measured %s at commit %s, on %d CPUs (%s), Linux %s, with etcd, the API server and the pods' lives on the same CPUs; load at the end %s.",
		time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(commit)), runtime.NumCPU(), e.CPU, e.Kernel, strings.Join(strings.Fields(e.LoadBefore + " ? ? ?")[:3], ", "))
}

// maps is the kernel memory of the agent's BPF maps in MiB, each counted once.
func (a *agent) maps() (float64, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", a.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	bytes := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // closed meanwhile
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			fields[name] = strings.TrimSpace(value)
		}
		if id := fields["map_id"]; id != "" {
			if bytes[id], err = strconv.Atoi(fields["memlock"]); err != nil {
				return 0, fmt.Errorf("read memory of map %s: %w", id, err)
			}
		}
	}
	total := 0
	for _, of := range bytes {
		total += of
	}
	return float64(total) / mib, nil
}

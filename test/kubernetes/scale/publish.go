package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
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

// maps is the kernel memory of the agent's BPF maps in MiB.
func (a *agent) maps() (total float64, err error) {
	all, err := a.metrics()
	for name, value := range all {
		if strings.HasPrefix(name, "beeline_map_bytes{") {
			total += value / mib
		}
	}
	return total, err
}

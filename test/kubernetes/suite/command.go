package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// command runs tests and prints events of `go test -json`.
type command []string

// run runs the command and forwards its events. It appends the cluster's name to the packages' names, because the same
// tests run on several clusters.
func (c command) run(ctx context.Context, cluster string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	progress("%s: %s", cluster, strings.Join(c, " "))
	cmd := exec.CommandContext(ctx, c[0], c[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	passErr := pass(events, os.Stdout, cluster)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(c, " "), err)
	}
	return passErr
}

// pass copies lines and appends the cluster to the package of each event.
func pass(from io.Reader, to io.Writer, cluster string) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var event map[string]any
		if json.Unmarshal(line, &event) == nil {
			if name, is := event["Package"].(string); is {
				event["Package"] = name + " (" + cluster + ")"
				if named, err := json.Marshal(event); err == nil {
					line = append(named, '\n')
				}
			}
		}
		if _, err := to.Write(line); err != nil {
			return err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// report prints a step of the suite as the event of a test.
func report(step string, begin time.Time, err error) {
	const name = "github.com/beeline-cni/beeline/test/kubernetes"
	encoder := json.NewEncoder(os.Stdout)
	event := map[string]any{"Action": "pass", "Package": name + " (" + strings.ToLower(step) + ")", "Test": step, "Elapsed": time.Since(begin).Seconds()}
	if err != nil {
		event["Action"] = "output"
		event["Output"] = fmt.Sprintf("--- FAIL: %s\n    %v\n", step, err)
		_ = encoder.Encode(event)
		event["Action"] = "fail"
	}
	_ = encoder.Encode(event)
	delete(event, "Test") // the package's own event
	_ = encoder.Encode(event)
}

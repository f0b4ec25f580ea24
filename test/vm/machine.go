package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// machine is one run of one kernel with its part of the tests, of which there are so many.
type machine struct {
	kernel      kernel
	image       image
	part, parts int
	// console is the file for what the kernel says.
	console string
	accel   string
	limit   time.Duration
}

func (m machine) String() string {
	if m.parts == 1 {
		return "Linux " + m.kernel.version
	}
	return fmt.Sprintf("Linux %s (%d of %d)", m.kernel.version, m.part+1, m.parts)
}

// leaner leaves out what the kernel does against attackers and for accounts, a tenth of the tests' time, and lets it trust the clock.
const leaner = "mitigations=off init_on_alloc=0 cgroup.memory=nokmem tsc=reliable " + patient

// patient keeps the kernel from panicking at once where the host is so busy that the timer does not tick in time.
const patient = "no_timer_check"

// errCrashed says that the guest's kernel or the emulator gave up; the error that wraps it has the console's end.
var errCrashed = errors.New("the machine ended before its tests did")

// runPatiently runs the machine, and once more if it crashed: a crash of our own making comes again, one of the emulator's does not.
// Events of the run that counts go to standard output.
func runPatiently(ctx context.Context, m machine, p *progress) error {
	const runs = 2
	for run := 1; ; run++ {
		var events bytes.Buffer
		at, end := p.begin(m.String())
		err := runMachine(ctx, m, at, &events)
		end()
		if run < runs && errors.Is(err, errCrashed) {
			fmt.Fprintf(os.Stderr, "vm: %s crashed and its tests are run once more: %v\n", m, err)
			continue
		}
		outputLock.Lock()
		defer outputLock.Unlock()
		_, writeErr := events.WriteTo(os.Stdout)
		return errors.Join(err, writeErr)
	}
}

// runMachine boots the machine, turns what its tests say into events, and returns when it has powered itself off
// or its time is up. An error means that the tests did not all run; failed tests are no error.
func runMachine(ctx context.Context, m machine, at *machineProgress, events io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return fmt.Errorf("QEMU is missing (Debian package qemu-system-x86, make deps): %w", err)
	}
	cmd := exec.CommandContext(ctx, qemu,
		"-accel", m.accel, "-cpu", "max", "-smp", "1", "-m", "2048",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.image.kernel, "-initrd", m.image.initrd, "-append", fmt.Sprintf("console=ttyS0 panic=-1 part=%d ", m.part)+leaner,
		"-serial", "file:"+m.console, "-serial", "stdio")
	cmd.Stderr = os.Stderr
	// With a terminal, QEMU would change its settings; and Ctrl-C is for this program.
	cmd.Stdin = nil
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	done, readErr := translate(at.follow(said), m.String(), events)
	err = cmd.Wait()
	fmt.Fprintf(os.Stderr, "vm: %s took %.0f s, %.0f s of them on a processor\n", m,
		time.Since(start).Seconds(), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("not finished after %s", m.limit)
	case readErr != nil:
		err = readErr
	case err == nil && !done:
		err = errCrashed
	}
	if err != nil {
		return fmt.Errorf("%w; the end of its console:\n%s", err, tail(m.console, 4000))
	}
	return nil
}

func tail(path string, size int) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return content[max(0, len(content)-size):]
}

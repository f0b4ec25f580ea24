package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// machine is a run of one kernel with one part of its tests.
type machine struct {
	kernel      kernel
	image       image
	part, parts int
	// console is the file for the kernel's messages.
	console string
	accel   string
	limit   time.Duration
	// progress copies the output to standard error as it comes: the events come when the machine has ended.
	progress bool
	// instructions makes the CPU's clock the number of instructions.
	instructions bool
}

func (m machine) String() string {
	if m.parts == 1 {
		return m.kernel.String()
	}
	return fmt.Sprintf("%s (%d of %d)", m.kernel, m.part+1, m.parts)
}

// kernelOptions turn off mitigations and accounting, a tenth of the tests' time, and let the kernel trust the clock. Without
// no_timer_check, the kernel panics on a host that is so busy that the timer ticks late.
const kernelOptions = "mitigations=off init_on_alloc=0 cgroup.memory=nokmem tsc=reliable no_timer_check"

// instructionClock lets a nanosecond pass with each instruction, and none while the CPU waits: it waits for nothing but the next timer.
var instructionClock = []string{"-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"}

// errCrashed means that the guest's kernel or the emulator stopped. The error that wraps it has the end of the console.
var errCrashed = errors.New("the machine ended before its tests did")

// runTwice runs the machine, and again if it crashed: crashes that our programs cause repeat, those of the emulator do not. It prints the
// events of the last run.
func runTwice(ctx context.Context, m machine) error {
	const runs = 2
	for run := 1; ; run++ {
		var events bytes.Buffer
		fmt.Fprintf(os.Stderr, "vm: %s starts\n", m)
		err := runMachine(ctx, m, &events)
		if run < runs && errors.Is(err, errCrashed) {
			fmt.Fprintf(os.Stderr, "vm: %s crashed, its tests run again: %v\n", m, err)
			continue
		}
		outputLock.Lock()
		defer outputLock.Unlock()
		_, writeErr := events.WriteTo(os.Stdout)
		return errors.Join(err, writeErr)
	}
}

// runMachine boots the machine, writes its tests' events, and returns when the machine has powered off or its time is up. An error means
// that some tests did not run; failed tests are not an error.
func runMachine(ctx context.Context, m machine, events io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return fmt.Errorf("QEMU is missing (Debian package qemu-system-x86, make deps): %w", err)
	}
	accel, parameters := []string{"-accel", m.accel}, kernelOptions
	if m.instructions {
		accel, parameters = instructionClock, kernelOptions+" BEELINE_INSTRUCTIONS=1"
	}
	cmd := exec.CommandContext(ctx, qemu, append(accel, "-cpu", "max", "-smp", "1", "-m", "2048",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.image.kernel, "-initrd", m.image.initrd, "-append", fmt.Sprintf("console=ttyS0 panic=-1 part=%d device=%s ", m.part, m.kernel.device)+parameters,
		"-serial", "file:"+m.console, "-serial", "stdio")...)
	cmd.Stderr = os.Stderr
	// QEMU would change a terminal's settings, and Ctrl-C is for this program.
	cmd.Stdin = nil
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	done, readErr := translate(m.reported(output), m.String(), events)
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

// reported is the output, of which a copy, or only its benchmarks, goes to standard error where that is wanted.
func (m machine) reported(output io.Reader) io.Reader {
	if !m.progress && !m.instructions {
		return output
	}
	r, w := io.Pipe()
	go func() {
		lines := bufio.NewReader(io.TeeReader(output, w))
		for {
			line, err := lines.ReadString('\n')
			line = strings.TrimPrefix(line, "\x16")
			switch {
			case m.progress && line != "":
				fmt.Fprintf(os.Stderr, "vm: %s: %s", m, line)
			case strings.HasPrefix(line, "Benchmark"):
				fmt.Fprint(os.Stderr, line)
			}
			if err != nil {
				w.CloseWithError(err) // io.EOF is a plain end
				return
			}
		}
	}()
	return r
}

func tail(path string, size int) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return content[max(0, len(content)-size):]
}

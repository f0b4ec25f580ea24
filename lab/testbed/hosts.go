package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Hosts is the lab's hosts file: the machine's with the nodes and pods of the lab by their names. It is
// always the same file, so that who has it mounted sees pods come and go.
func (l *Lab) Hosts() string { return filepath.Join(l.Dir(), "hosts") }

// Command is a command that will see the lab's hosts file as /etc/hosts, in a mount namespace of its own. The
// shell that mounts it becomes the command; it gives exit code 127 where there is no such command.
func (l *Lab) Command(name string, args ...string) *exec.Cmd {
	const mountAndRun = `mount --bind "$1" /etc/hosts && shift && exec "$@"`
	// "lab" is the name in the shell's own messages.
	cmd := exec.Command("/bin/sh", append([]string{"-c", mountAndRun, "lab", l.Hosts(), name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // made private by os/exec
	return cmd
}

func (l *Lab) writeHosts() error {
	machine, err := os.ReadFile("/etc/hosts")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	file, err := os.OpenFile(l.Hosts(), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	// Held while pods are read, so that of two writers the later one knows the pods of both.
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", l.Hosts(), err)
	}
	pods, err := l.Pods()
	if err != nil {
		return err
	}
	var text strings.Builder
	text.Write(machine)
	fmt.Fprintf(&text, "\n# The lab %s\n", l.Name)
	for _, n := range l.nodes {
		for _, a := range n.Addresses {
			fmt.Fprintf(&text, "%s\t%s\n", a.Addr(), n.Name)
		}
	}
	for _, p := range pods {
		for _, a := range p.Addresses {
			fmt.Fprintf(&text, "%s\t%s\n", a, p.Name)
		}
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteString(text.String())
	return err
}

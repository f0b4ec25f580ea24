package netlab

import (
	"os"
	"os/exec"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// AgentCommand is the command line of an agent that reads manifests, with the devices of $BEELINE_DEVICE, and with files of
// its own for keys if it encrypts. flags override the defaults.
func AgentCommand(p Programs, n *testbed.Node, manifests string, flags ...string) *exec.Cmd {
	if kind := os.Getenv(testenv.DeviceVariable); kind != "" {
		flags = append([]string{"--device", kind}, flags...)
	}
	if EncryptionOf(flags) != (Encryption{}) {
		flags = append(encryptionFiles(n), flags...)
	}
	return exec.Command(p.Agent(), append([]string{"run",
		"--node-name", n.Name,
		"--manifests", manifests,
		"--socket", Socket(n),
		"--state-dir", StateDir(n),
		"--bpffs", n.BPFFS,
		"--cgroup", n.Cgroup,
	}, flags...)...)
}

// StartAgent starts cmd on the node and does not wait until the agent is ready. The output is appended to LogFile.
func StartAgent(n *testbed.Node, cmd *exec.Cmd) (*testbed.Process, error) {
	log, err := os.OpenFile(LogFile(n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	return n.Background(cmd)
}

package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// patience is how long a program may take: `build` compiles.
const patience = 15 * time.Minute

// saidMax bounds the words of a program's standard error that an error repeats, in bytes.
const saidMax = 2 << 10

// build runs the program build, if there is one.
func (n Network) build(ctx context.Context) error {
	if !n.has(programBuild) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.program(programBuild))
	cmd.Dir = n.dir
	if words, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", n.program(programBuild), err, lastWords(words))
	}
	return nil
}

// lastWords are the end of what a program has said.
func lastWords(said []byte) string {
	return strings.TrimSpace(string(said[max(0, len(said)-saidMax):]))
}

// run runs a program in the namespace and cgroup of a node and returns its standard output. Its outputs are files: what it leaves
// running may keep them open. environ is that of a CNI plugin, for programs of pods.
func (n Network) run(ctx context.Context, lab *testbed.Lab, node *testbed.Node, name string, environ map[string]string) (said []byte, err error) {
	in := inputOf(lab, node, network.Kubeconfig(lab))
	if environ != nil {
		in.Pod = podOf(environ)
	}
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode input of %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir, err := os.MkdirTemp(node.StateDir, name+"-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cmd := exec.CommandContext(ctx, n.program(name))
	cmd.Dir, cmd.Stdin, cmd.Env = n.dir, strings.NewReader(string(text)), os.Environ()
	for key, value := range environ {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	stdout, err := os.Create(filepath.Join(dir, "stdout"))
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := node.Run(cmd); err != nil {
		words, _ := os.ReadFile(stderr.Name())
		return nil, fmt.Errorf("run %s on %s: %w: %s", n.program(name), node.Name, err, lastWords(words))
	}
	return os.ReadFile(stdout.Name())
}

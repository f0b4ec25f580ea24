package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// reading holds the flags of every command that reads the agent.
type reading struct {
	socket string
	output string
}

// newReadCommand makes a command that requests something from the agent and prints it.
func newReadCommand[T any](e cli.Env, use, short string, ask func(*cobra.Command, *agentapi.Client) (T, error), text func(io.Writer, T) error) *cobra.Command {
	return newReadArgsCommand(e, use, short, cobra.NoArgs,
		func(cmd *cobra.Command, _ []string, c *agentapi.Client) (T, error) { return ask(cmd, c) }, text)
}

// newReadArgsCommand makes one with arguments.
func newReadArgsCommand[T any](e cli.Env, use, short string, args cobra.PositionalArgs,
	ask func(*cobra.Command, []string, *agentapi.Client) (T, error), text func(io.Writer, T) error) *cobra.Command {
	var r reading
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(r.output); err != nil {
				return err
			}
			answer, err := ask(cmd, args, agentapi.NewClient(r.socket))
			if err != nil {
				return explain(err)
			}
			if r.output != "text" {
				return printAs(e.Stdout, r.output, answer)
			}
			return text(e.Stdout, answer)
		},
	}
	cmd.Flags().StringVar(&r.socket, "socket", defaultSocket(), "the agent's unix socket")
	cmd.Flags().StringVarP(&r.output, "output", "o", "text", formats)
	return cmd
}

func defaultSocket() string {
	if socket := os.Getenv(cli.SocketVariable); socket != "" {
		return socket
	}
	return agentapi.DefaultSocket
}

// explain adds what to do if the agent's socket has no listener or denies access.
func explain(err error) error {
	switch {
	case errors.Is(err, agentapi.ErrNoAgent):
		return fmt.Errorf("%w: is `beeline-agent run` running on this node, with this --socket?", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: only root can access the agent", err)
	}
	return err
}

// byteCount formats a size in B, KiB or MiB.
func byteCount(n uint64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
	"github.com/beeline-cni/beeline/internal/agentapi"
)

// newReadCommand makes a command that requests something from the agent and prints it.
func newReadCommand[T any](e cli.Env, use, short string, ask func(*agentapi.Client, context.Context) (T, error),
	text func(io.Writer, T) error) *cobra.Command {
	return newCommand(e, use, short, "text, "+dataFormats, ask, func(w io.Writer, v T, _ string) error { return text(w, v) })
}

// newListCommand makes one for a list of objects. name gives "kind/name" as kubectl prints it.
func newListCommand[T any](e cli.Env, use, short string, ask func(*agentapi.Client, context.Context) ([]T, error),
	text func(w io.Writer, all []T, wide bool) error, name func(T) string) *cobra.Command {
	return newCommand(e, use, short, "text, wide, name, "+dataFormats, ask, func(w io.Writer, all []T, format string) error {
		if format != "name" {
			return text(w, all, format == "wide")
		}
		printed := map[string]bool{} // a Service has an entry for each port
		for _, v := range all {
			if of := name(v); !printed[of] {
				printed[of] = true
				fmt.Fprintln(w, of)
			}
		}
		return nil
	})
}

// newCommand makes a command whose formats are dataFormats and those that text prints.
func newCommand[T any](e cli.Env, use, short, formats string, ask func(*agentapi.Client, context.Context) (T, error),
	text func(w io.Writer, v T, format string) error) *cobra.Command {
	var socket, output string
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(output, formats); err != nil {
				return err
			}
			answer, err := ask(agentapi.NewClient(socket), cmd.Context())
			if err != nil {
				return explain(err)
			}
			if output == "text" || output == "wide" || output == "name" {
				return text(e.Stdout, answer, output)
			}
			return printAs(e.Stdout, output, answer)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSocket(), "the agent's unix socket")
	cmd.Flags().StringVarP(&output, "output", "o", "text", formats)
	return cmd
}

// byName adds the argument NAME, or NAMESPACE/NAME, and --namespace to a command that lists objects of a kind.
func byName(cmd *cobra.Command, kind string, namespace, name *string) *cobra.Command {
	cmd.Args = cli.Arguments(cobra.MaximumNArgs(1))
	cmd.Flags().StringVarP(namespace, "namespace", "n", "", "show "+kind+" of this namespace only")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			*name = args[0]
			if within, rest, ok := strings.Cut(args[0], "/"); ok {
				*namespace, *name = within, rest
			}
		}
		return run(cmd, args)
	}
	return cmd
}

// oneOrMore is an error where a list of objects with a name is empty.
func oneOrMore[T any](all []T, err error, kind, namespace, name, where string) ([]T, error) {
	if err != nil || len(all) > 0 || name == "" {
		return all, err
	}
	within := ""
	if namespace != "" {
		within = fmt.Sprintf(" in namespace %q", namespace)
	}
	return nil, fmt.Errorf("there is no %s %q%s%s", kind, name, within, where)
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

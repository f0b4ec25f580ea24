// Package cli has what the commands below cmd/ share: how they start, end and print.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Env is the output of a command, so that tests can read it.
type Env struct {
	Stdout, Stderr io.Writer
}

// ExitCode is an error that has been reported already: the program ends with this code and prints nothing more.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// SocketVariable is the environment variable with the agent's socket where it is not the default one.
const SocketVariable = "BEELINE_SOCKET"

// Main runs the program with the arguments of the process and exits. SIGINT and SIGTERM end the context.
func Main(root func(Env) *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Run(ctx, Env{os.Stdout, os.Stderr}, root, os.Args[1:])
	stop()
	os.Exit(code)
}

// Run runs the program with these arguments and returns its exit code. It prints the error, if any.
func Run(ctx context.Context, e Env, root func(Env) *cobra.Command, args []string) int {
	cmd := root(e)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	var code ExitCode
	if errors.As(err, &code) {
		return int(code)
	}
	if err != nil {
		fmt.Fprintf(e.Stderr, "%s: %v\n", cmd.Name(), err)
		return 1
	}
	return 0
}

// Root returns a program's root command.
func Root(e Env, name, short, version string, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         short,
		Version:       version,
		Args:          cobra.NoArgs, // without it, a mistyped command prints the help and succeeds
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate(name + " {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return FlagError(err) })
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	root.AddCommand(commands...)
	return root
}

// Group returns a command that only has subcommands. It rejects an unknown one; cobra alone prints the help and succeeds.
func Group(name, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	group.AddCommand(commands...)
	return group
}

// NoArguments rejects positional arguments of a command without subcommands.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q: %s takes no arguments", args[0], cmd.CommandPath())
}

// FlagError says what is wrong with the value of a flag, without the words of package strconv.
func FlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	cause := errors.Unwrap(invalid)
	var number *strconv.NumError
	switch {
	case !errors.As(cause, &number):
	case errors.Is(number.Err, strconv.ErrRange):
		cause = fmt.Errorf("%s is out of range", number.Num)
	default:
		cause = fmt.Errorf("%q is not a valid %s", number.Num, invalid.GetFlag().Value.Type())
	}
	return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, cause)
}

// Arguments checks positional arguments and adds the usage line to the error.
func Arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: usage: %s", err, cmd.UseLine())
		}
		return nil
	}
}

// JSON prints a value as indented JSON.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Table prints rows in columns; the first row is the heading.
func Table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

package main

import "github.com/spf13/cobra"

func newAgentCommand(_ env) *cobra.Command {
	return &cobra.Command{Use: "agent"}
}

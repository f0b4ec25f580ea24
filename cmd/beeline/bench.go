package main

import "github.com/spf13/cobra"

func newBenchCommand(_ env) *cobra.Command {
	return &cobra.Command{Use: "bench"}
}

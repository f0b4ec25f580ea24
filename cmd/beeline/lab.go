package main

import "github.com/spf13/cobra"

func newLabCommand(_ env) *cobra.Command {
	return &cobra.Command{Use: "lab"}
}

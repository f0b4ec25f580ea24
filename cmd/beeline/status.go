package main

import "github.com/spf13/cobra"

func newStatusCommand(_ env) *cobra.Command {
	return &cobra.Command{Use: "status"}
}

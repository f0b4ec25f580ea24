package main

import "github.com/spf13/cobra"

func newDropsCommand(_ env) *cobra.Command {
	return &cobra.Command{Use: "drops"}
}

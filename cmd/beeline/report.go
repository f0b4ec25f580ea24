package main

import "github.com/spf13/cobra"

func newReportCommand(_ env) *cobra.Command {
	return &cobra.Command{Use: "report"}
}

package main

import "github.com/spf13/cobra"

func newEndpointsCommand(_ env) *cobra.Command {
	return &cobra.Command{Use: "endpoints"}
}

// Command boot is process 1 of a machine, see package machine.
package main

import (
	"fmt"
	"os"

	"github.com/beeline-cni/beeline/test/kubernetes/machine"
)

func main() {
	if err := machine.Boot(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "boot: %v\n", err)
	}
	os.Exit(1) // neither stage ends by itself
}

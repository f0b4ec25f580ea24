// Command boot keeps the services of the machine in its argument running, see package machine.
package main

import (
	"fmt"
	"os"

	"github.com/beeline-cni/beeline/test/kubernetes/machine"
)

func main() {
	if err := machine.Supervise(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "boot: %v\n", err)
	}
	os.Exit(1) // it does not end by itself
}

// Command beeline-cni is the CNI plugin that the container runtime executes for each pod.
package main

import (
	"os"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/beeline-cni/beeline/internal/cni"
)

// version is set when the program is built.
var version = "unversioned"

func main() {
	skel.PluginMainFuncs(cni.New(os.Stdout, os.Stderr).Funcs(), cni.Versions(), "CNI plugin "+cni.Type+" "+version)
}

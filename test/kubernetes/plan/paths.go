package plan

import "path/filepath"

// Paths on the machine that runs the cluster. Everything of the cluster outside of the caches is below RunDir and
// DiskDir, in the cgroups CgroupName, or in network namespaces with NetnsPrefix.
const (
	// RunDir has configuration and sockets; machines have it at the same path.
	RunDir = "/run/beeline-kubernetes"
	// DiskDir has large files and those that outlive a reboot of a node. It must not be a tmpfs or overlay.
	DiskDir = "/var/lib/beeline-kubernetes"
	// CgroupName is the cgroup, in each hierarchy, with one below it for each machine.
	CgroupName  = "beeline-kubernetes"
	NetnsPrefix = "blk-"
	netnsDir    = "/run/netns"
)

// BinDir is the directory of the binaries on machines.
const BinDir = "/opt/kubernetes/bin"

// Kubeconfig is the administrator's kubeconfig.
const Kubeconfig = RunDir + "/kubeconfig"

// BeelineManifest is the applied manifest of Beeline: the project's with the changes for this cluster.
const BeelineManifest = RunDir + "/beeline.yaml"

// Record is the file that describes the cluster.
const Record = RunDir + "/cluster.json"

// Netns is the name of a machine's network namespace.
func Netns(machine string) string { return NetnsPrefix + machine }

// NetnsPath is the path of that namespace.
func NetnsPath(machine string) string { return filepath.Join(netnsDir, Netns(machine)) }

// Dir is the directory of the machine's configuration.
func Dir(machine string) string { return filepath.Join(RunDir, machine) }

// Disk is the machine's part of DiskDir.
func Disk(machine string) string { return filepath.Join(DiskDir, machine) }

// LogDir has a file for each component of the machine. It is the machine's /var/log/components.
func LogDir(machine string) string { return filepath.Join(Disk(machine), "var/log/components") }

// Log is the path of a component's log on the host.
func Log(machine, component string) string {
	return filepath.Join(LogDir(machine), component+".log")
}

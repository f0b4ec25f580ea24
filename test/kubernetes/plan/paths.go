package plan

import "path/filepath"

// Places on the machine that runs the cluster. Everything the cluster leaves outside of the caches is below
// RunDir and DiskDir, in the cgroups called CgroupName, or in network namespaces whose names begin with NetnsPrefix.
const (
	// RunDir holds what processes need to find each other; machines see it at the same place.
	RunDir = "/run/beeline-kubernetes"
	// DiskDir holds what is large or outlives a reboot of a node: it must not be a tmpfs or overlay.
	DiskDir = "/var/lib/beeline-kubernetes"
	// CgroupName is the cgroup, in each hierarchy, with one below it for each machine.
	CgroupName  = "beeline-kubernetes"
	NetnsPrefix = "blk-"
	netnsDir    = "/run/netns"
)

// BinDir is where machines see the binaries.
const BinDir = "/opt/kubernetes/bin"

// Kubeconfig is the administrator's.
const Kubeconfig = RunDir + "/kubeconfig"

// BeelineManifest is what was applied to install Beeline: the manifest of the project with what this cluster needs.
const BeelineManifest = RunDir + "/beeline.yaml"

// EnvFile lists, for shells and programs, what is needed to use the cluster: lines of NAME='value'.
const EnvFile = RunDir + "/env"

// BootProgram is what the machines' first processes run.
const BootProgram = RunDir + "/boot"

// Record is the file that says what is up.
const Record = RunDir + "/cluster.json"

// Netns is the name of a machine's network namespace.
func Netns(machine string) string { return NetnsPrefix + machine }

// NetnsPath is where that namespace can be entered.
func NetnsPath(machine string) string { return filepath.Join(netnsDir, Netns(machine)) }

// Dir is where the machine's configuration lies.
func Dir(machine string) string { return filepath.Join(RunDir, machine) }

// Disk is the machine's part of DiskDir.
func Disk(machine string) string { return filepath.Join(DiskDir, machine) }

// LogDir has one file for each component of the machine; it is the machine's /var/log/components as well.
func LogDir(machine string) string { return filepath.Join(Disk(machine), "var/log/components") }

// Log is the log of one component, as seen from outside.
func Log(machine, component string) string {
	return filepath.Join(LogDir(machine), component+".log")
}

// Package worker is the bench's hand inside a pod of a live cluster: it starts servers, runs workloads and reads what
// only the pod and its node know. Requests come as lines of JSON on its standard input, replies leave on its standard
// output; that is the stream of an exec into the pod, so the bench needs no port of its own there. Two workers of one
// measurement also speak to each other, over the path that is measured: see control.go.
package worker

import (
	"time"

	"github.com/beeline-cni/beeline/lab/procstat"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Version is that of the protocol: both sides must have the same one. It changes with every change that the other side
// would not notice.
const Version = 2

// Request asks for one thing: exactly one field is set. Requests are answered one after the other.
type Request struct {
	Serve *Serve `json:"serve,omitempty"`
	Run   *Run   `json:"run,omitempty"`
	Probe *End   `json:"probe,omitempty"`
	CPU   bool   `json:"cpu,omitempty"`
	Facts *Ask   `json:"facts,omitempty"`
}

// Reply answers one request: the field of the same name is set, or Error.
type Reply struct {
	Error string          `json:"error,omitempty"`
	Run   *Sample         `json:"run,omitempty"`
	Probe *Path           `json:"probe,omitempty"`
	CPU   *procstat.Ticks `json:"cpu,omitempty"`
	Facts *Facts          `json:"facts,omitempty"`
}

// End is where a server is found.
type End struct {
	workload.Target
	// Control is the port, TCP and UDP, of the server's worker; Token is what it answers to.
	Control int    `json:"control"`
	Token   string `json:"token"`
}

// Serve starts what a workload needs of a server, for up to Procs processes. End is where the worker listens. All
// requests of a worker name the same End.
type Serve struct {
	End
	Workload string `json:"workload"`
	Procs    int    `json:"procs"`
	// CPU is the only one that the servers may use; nil: any.
	CPU *int `json:"cpu,omitempty"`
}

// Run makes one sample to a server.
type Run struct {
	End
	Workload string        `json:"workload"`
	Procs    int           `json:"procs"`
	Length   time.Duration `json:"length"`
	Turn     int           `json:"turn"`
	// CPU is the only one that the clients may use; nil: any.
	CPU *int `json:"cpu,omitempty"`
}

// Sample is what a Run gave.
type Sample struct {
	workload.Outcome
	// Window is how long the measured traffic lasted, in seconds, and ClientCPU and ServerCPU what passed meanwhile on
	// all CPUs of both ends' machines, or on the only one that an end may use. NoCPU says why they are missing.
	Window    float64        `json:"window"`
	ClientCPU procstat.Ticks `json:"clientCPU"`
	ServerCPU procstat.Ticks `json:"serverCPU"`
	// ServerWindow is how long the server's took, in seconds: it hears a moment later than the client when the traffic
	// begins and ends.
	ServerWindow float64 `json:"serverWindow"`
	NoCPU        string  `json:"noCPU,omitempty"`
}

// Path is what a Probe found on the path to a server.
type Path struct {
	// MTU is the largest IP packet, in bytes, that reached the server unfragmented, of those that TCP sends there.
	MTU int `json:"mtu"`
	// Segment is the payload, in bytes, that TCP puts into one packet on a new connection there.
	Segment int `json:"segment"`
	// Congestion is the congestion control of a new connection there.
	Congestion string `json:"congestion"`
	// Source is the client's own address on the connection, Seen the one that the server saw.
	Source string `json:"source"`
	Seen   string `json:"seen"`
}

// Ask says what Facts are to have.
type Ask struct {
	// Proxy asks kube-proxy on the node for its mode; a pod in the node's network only can.
	Proxy bool `json:"proxy,omitempty"`
}

// Facts are what a worker knows of its pod and its node.
type Facts struct {
	// Version is the worker's.
	Version     int                `json:"version"`
	Environment result.Environment `json:"environment"`
	// Boot identifies the running kernel: nodes with the same one share it, and its CPUs.
	Boot string `json:"boot"`
	// Devices are the names of the network devices that the pod sees.
	Devices []string `json:"devices"`
	// Proxy is kube-proxy's mode, as it says itself; NoProxy says why it does not.
	Proxy   string `json:"proxy,omitempty"`
	NoProxy string `json:"noProxy,omitempty"`
}

package result

// Services holds what the services suite measures beside the samples.
type Services struct {
	Convergence []ServiceConvergence `json:"convergence,omitempty"`
	Syncs       []Sync               `json:"syncs,omitempty"`
}

// ServiceChange is a kind of change to Services whose effect is timed.
type ServiceChange string

const (
	// ServiceCreated creates a Service with ten backends and waits until a connection reaches one of them.
	ServiceCreated ServiceChange = "service-created"
	// BackendAdded adds a second backend to a Service and waits until a connection reaches it.
	BackendAdded ServiceChange = "backend-added"
)

// ServiceConvergence is the time from when the API server has a change until traffic follows it.
type ServiceConvergence struct {
	Network string        `json:"network"`
	Change  ServiceChange `json:"change"`
	// Services is the number of Services in the cluster, Backends the number of backends of most of them.
	Services int `json:"services"`
	Backends int `json:"backends"`
	// Milliseconds has one value per change.
	Milliseconds []float64 `json:"milliseconds"`
	// Error is the reason why values are missing.
	Error string `json:"error,omitempty"`
}

// Sync is the time and memory that one node needs to program all Services from an empty start.
type Sync struct {
	Network string `json:"network"`
	// Services is the number of Services in the cluster, Backends the number of backends of each.
	Services int `json:"services"`
	Backends int `json:"backends"`
	// Seconds has one value per start: from the start of the program until connections through the first, the
	// last and the Services between them work.
	Seconds []float64 `json:"seconds"`
	// RSSBytes is resident memory at rest, MapBytes the memory of BPF maps.
	RSSBytes uint64 `json:"rssBytes,omitempty"`
	MapBytes uint64 `json:"mapBytes,omitempty"`
	// Error is the reason why values are missing.
	Error string `json:"error,omitempty"`
}

// Target is the kind of address that the clients of a workload connect to. The empty Target is the server's own address.
type Target string

// ToClusterIP is the ClusterIP of a Service.
const ToClusterIP Target = "clusterip"

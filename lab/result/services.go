package result

// Services is what a bench of Services measures beside the samples.
type Services struct {
	Changes []Change `json:"changes,omitempty"`
	Syncs   []Sync   `json:"syncs,omitempty"`
}

// Happening is a change of Services whose effect is timed.
type Happening string

// The changes.
const (
	// ServiceCreated is a new Service with ten backends, until a connection through it reaches one of them.
	ServiceCreated Happening = "service-created"
	// BackendAdded is a second backend of a Service, until a connection through it reaches that one.
	BackendAdded Happening = "backend-added"
)

// Change is how long it takes until traffic follows a change of one kind, from the moment at which the API server has it.
type Change struct {
	Contender string    `json:"contender"`
	What      Happening `json:"what"`
	// Services is how many there are, Backends how many each of most of them has.
	Services     int       `json:"services"`
	Backends     int       `json:"backends"`
	Milliseconds []float64 `json:"milliseconds"`
	// Error says why there are no more of them.
	Error string `json:"error,omitempty"`
}

// Sync is how a contender takes in all Services from nothing on one node, and what memory it then has.
type Sync struct {
	Contender string `json:"contender"`
	Services  int    `json:"services"`
	// Backends is the number of each Service's.
	Backends int `json:"backends"`
	// Seconds are from the start of the program until connections through Services from the first to the last work.
	Seconds []float64 `json:"seconds"`
	// RSSBytes is resident memory once it has come to rest, MapBytes what its BPF maps hold.
	RSSBytes uint64 `json:"rssBytes,omitempty"`
	MapBytes uint64 `json:"mapBytes,omitempty"`
	// Error says why there is nothing.
	Error string `json:"error,omitempty"`
}

// Target says which address the clients of a workload connect to.
type Target string

// ToClusterIP is the address of a Service. An empty target is the server's own.
const ToClusterIP Target = "clusterip"

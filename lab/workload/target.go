package workload

import "net/netip"

// Target is where clients find the servers of one place.
type Target struct {
	Address netip.Addr
	Ports   Ports
}

// Ports are where servers listen. Iperf has one for each parallel process.
type Ports struct {
	Netperf  int   `json:"netperf"`
	Sockperf int   `json:"sockperf"`
	Iperf    []int `json:"iperf"`
	Redis    int   `json:"redis,omitempty"`
	// HTTP are all the same server's. Samples in turn use the next one, because a web server that closes connections
	// remembers their ports for a minute, and not every new connection from the same one is taken meanwhile (RFC 6191),
	// if it came another way.
	HTTP []int `json:"http,omitempty"`
	// Data are the ports of the connections that netperf measures. Without any, the server takes those that the kernel
	// gives it, which a client behind a translated address does not reach; with some, samples in turn use the next
	// ones, because a port pair of a closed connection rests for a minute.
	Data []int `json:"data,omitempty"`
}

// HTTPPorts is how many ports a web server has where nothing stands against many: more than there are samples within a
// minute.
const HTTPPorts = 16

// UsualPorts are those of a place where nothing stands between the ends: the tools' own.
var UsualPorts = Ports{Netperf: 12865, Sockperf: 11111, Iperf: Consecutive(5201, 32), Redis: 6379, HTTP: Consecutive(8080, HTTPPorts)}

// Consecutive returns n ports from first on.
func Consecutive(first, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = first + i
	}
	return list
}

// Server is what a client needs of the other end.
type Server interface {
	// Target is where clients connect to.
	Target() Target
	// EndTests ends the server's halves of netperf tests that still wait for their own timers.
	EndTests()
}

package cluster

import (
	"encoding/binary"
	"sync"
)

// portLists are lists of named ports by their content; equal lists share their memory.
type portLists struct {
	mu  sync.Mutex
	all map[string][]ContainerPort
}

// knownPortsMax bounds how many lists are kept; beyond that sharing starts anew.
const knownPortsMax = 1024

var knownPorts = portLists{all: map[string][]ContainerPort{}}

// share gives a list with the same content, which must not be changed.
func (l *portLists) share(ports []ContainerPort) []ContainerPort {
	if len(ports) == 0 {
		return nil
	}
	var content []byte
	for _, p := range ports {
		content = append(content, p.Name...)
		content = append(content, 0, byte(p.Protocol))
		content = binary.BigEndian.AppendUint16(content, p.Number)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, found := l.all[string(content)]; found {
		return known
	}
	if len(l.all) >= knownPortsMax {
		clear(l.all)
	}
	ports = ports[:len(ports):len(ports)]
	l.all[string(content)] = ports
	return ports
}

package cluster

import (
	"fmt"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// EndpointSlice is a part of a Service's endpoints. Snapshots omit slices of address type FQDN, of headless Services
// and of Services of another proxy.
type EndpointSlice struct {
	Namespace, Name string
	// Service is the name of the Service, in the same namespace.
	Service   string
	Ports     []EndpointPort
	Endpoints []Endpoint
}

// Key gives namespace and name.
func (s *EndpointSlice) Key() Key { return Key{s.Namespace, s.Name} }

// EndpointPort is a port that all endpoints of a slice have. Its Name is that of the Service's port.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Number   uint16
}

// Endpoint is a backend of a Service.
type Endpoint struct {
	// Address is the first one; by the API the others mean the same endpoint.
	Address netip.Addr
	// Ready endpoints get connections. Serving ones that are Terminating get them when no ready one is left.
	Ready, Serving, Terminating bool
	// Node is its node; empty if it has none.
	Node string
	// Hints say which clients should use it; nil means all. Most endpoints of a large cluster have none.
	Hints *EndpointHints
}

// EndpointHints are the zones and nodes whose clients should use an endpoint.
type EndpointHints struct{ ForZones, ForNodes []string }

// reduceEndpointSlice checks an EndpointSlice and reduces it; nil without errors if snapshots omit it.
func reduceEndpointSlice(s *discoveryv1.EndpointSlice) (*EndpointSlice, []fieldError) {
	if !concernsServices(s.Labels) || s.AddressType == discoveryv1.AddressTypeFQDN || s.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	var c checks
	key := c.key(s.Namespace, s.Name, validation.IsDNS1123Subdomain)
	slice := &EndpointSlice{
		Namespace: key.Namespace,
		Name:      key.Name,
		Service:   Intern(s.Labels[discoveryv1.LabelServiceName]),
		Ports:     make([]EndpointPort, 0, len(s.Ports)),
		Endpoints: make([]Endpoint, 0, len(s.Endpoints)),
	}
	for i, p := range s.Ports {
		if p.Port == nil {
			continue // "all ports", which no Service uses
		}
		at := fmt.Sprintf("ports[%d]", i)
		port := EndpointPort{Name: Intern(ptr.Deref(p.Name, "")), Number: c.port(at+".port", *p.Port)}
		port.Protocol = c.protocol(at+".protocol", ptr.Deref(p.Protocol, ""))
		slice.Ports = append(slice.Ports, port)
	}
	for i, e := range s.Endpoints {
		at := fmt.Sprintf("endpoints[%d].addresses", i)
		if len(e.Addresses) == 0 {
			c.fail(at, "missing")
			continue
		}
		addr, ok := c.address(at+"[0]", e.Addresses[0], "an endpoint")
		if ok && addr.Is4() != (s.AddressType == discoveryv1.AddressTypeIPv4) {
			c.fail(at+"[0]", "%s is not of the slice's address type, %s", addr, s.AddressType)
		}
		// By the API, unset conditions are true, and serving defaults to ready.
		ready := ptr.Deref(e.Conditions.Ready, true)
		endpoint := Endpoint{
			Address: addr, Ready: ready, Serving: ptr.Deref(e.Conditions.Serving, ready), Terminating: ptr.Deref(e.Conditions.Terminating, false),
			Node: Intern(ptr.Deref(e.NodeName, "")),
		}
		if e.Hints != nil {
			endpoint.Hints = hintsOf(e.Hints)
		}
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	return slice, c.errs
}

// hintsOf reduces hints; nil if they are empty.
func hintsOf(full *discoveryv1.EndpointHints) *EndpointHints {
	if len(full.ForZones)+len(full.ForNodes) == 0 {
		return nil
	}
	var hints EndpointHints
	for _, zone := range full.ForZones {
		hints.ForZones = append(hints.ForZones, Intern(zone.Name))
	}
	for _, node := range full.ForNodes {
		hints.ForNodes = append(hints.ForNodes, Intern(node.Name))
	}
	return &hints
}

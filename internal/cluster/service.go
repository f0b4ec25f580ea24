package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Service is a Service that has an address of its own, reduced to what sending its connections to endpoints needs.
// Services without one (headless, ExternalName) and those that are left to another proxy
// (label service.kubernetes.io/service-proxy-name) are not in snapshots.
type Service struct {
	Namespace, Name string
	// UID is that of the object, by which Events about it are found; empty where nobody has given it one.
	UID string
	// ClusterIPs are spec.clusterIPs, at most one of each family.
	ClusterIPs []netip.Addr
	// ExternalIPs are spec.externalIPs.
	ExternalIPs []netip.Addr
	// LoadBalancerIPs are the addresses in status.loadBalancer that arrive as they are (ipMode VIP).
	LoadBalancerIPs []netip.Addr
	// LoadBalancerSources are who may use LoadBalancerIPs; none means everybody.
	LoadBalancerSources []netip.Prefix
	Ports               []ServicePort
	// Affinity is how long connections of one client go to the same endpoint; 0 is no affinity.
	Affinity time.Duration
	// InternalLocal and ExternalLocal keep traffic from inside and outside the cluster on endpoints of the node it comes to.
	InternalLocal, ExternalLocal bool
	// HealthCheckNodePort is where a load balancer asks whether this node has endpoints; 0 is nowhere.
	HealthCheckNodePort uint16
}

// Key gives namespace and name.
func (s *Service) Key() Key { return Key{s.Namespace, s.Name} }

// ServicePort is one port of a Service. Its Name is that of the port in EndpointSlices.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Number   uint16
	// NodePort is the port on every node; 0 is none.
	NodePort uint16
}

// Labels that take a Service, and its EndpointSlices, from the proxy of the cluster.
const (
	labelServiceProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless         = corev1.IsHeadlessService
)

// ServiceSelector is the label selector for the Services and EndpointSlices that snapshots have, so that a server need not send the others.
const ServiceSelector = "!" + labelServiceProxyName + ",!" + labelHeadless

// concernsServices tells whether labels fit ServiceSelector.
func concernsServices(labels map[string]string) bool {
	_, other := labels[labelServiceProxyName]
	_, headless := labels[labelHeadless]
	return !other && !headless
}

// reduceService checks a Service and reduces it; nil, without errors, if it is none for snapshots.
func reduceService(s *corev1.Service) (*Service, []fieldError) {
	if !concernsServices(s.Labels) || s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil, nil
	}
	var c checks
	key := c.key(s.Namespace, s.Name, validation.IsDNS1123Label)
	service := &Service{
		Namespace:           key.Namespace,
		Name:                key.Name,
		UID:                 string(s.UID),
		InternalLocal:       s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		ExternalLocal:       s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		ExternalIPs:         c.addresses("spec.externalIPs", s.Spec.ExternalIPs),
		LoadBalancerSources: c.blocks("spec.loadBalancerSourceRanges", s.Spec.LoadBalancerSourceRanges),
	}
	if len(s.Spec.ClusterIPs) > 0 {
		service.ClusterIPs = c.addresses("spec.clusterIPs", s.Spec.ClusterIPs)
	} else if s.Spec.ClusterIP != "" {
		service.ClusterIPs = c.addresses("spec.clusterIP", []string{s.Spec.ClusterIP})
	}
	for i, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP == "" || ingress.IPMode != nil && *ingress.IPMode != corev1.LoadBalancerIPModeVIP {
			continue
		}
		if addr, ok := c.address(fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), ingress.IP, "a load balancer"); ok {
			service.LoadBalancerIPs = append(service.LoadBalancerIPs, addr)
		}
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		service.Affinity = affinity(s.Spec.SessionAffinityConfig)
	}
	if s.Spec.HealthCheckNodePort != 0 {
		service.HealthCheckNodePort = c.port("spec.healthCheckNodePort", s.Spec.HealthCheckNodePort)
	}
	service.Ports = make([]ServicePort, 0, len(s.Spec.Ports))
	for i, p := range s.Spec.Ports {
		at := fmt.Sprintf("spec.ports[%d]", i)
		port := ServicePort{Name: intern(p.Name), Protocol: c.protocol(at+".protocol", p.Protocol), Number: c.port(at+".port", p.Port)}
		if p.NodePort != 0 {
			port.NodePort = c.port(at+".nodePort", p.NodePort)
		}
		service.Ports = append(service.Ports, port)
	}
	return service, c.errs
}

// affinity is how long a client's connections stay together; the API server's own default where nothing is said.
func affinity(config *corev1.SessionAffinityConfig) time.Duration {
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return time.Duration(corev1.DefaultClientIPServiceAffinitySeconds) * time.Second
	}
	return time.Duration(*config.ClientIP.TimeoutSeconds) * time.Second
}

func (c *checks) addresses(field string, texts []string) (all []netip.Addr) {
	for i, text := range texts {
		if addr, ok := c.address(fmt.Sprintf("%s[%d]", field, i), text, "a Service"); ok {
			all = append(all, addr)
		}
	}
	return all
}

// blocks reads CIDRs, around which the API server takes white space.
func (c *checks) blocks(field string, texts []string) (all []netip.Prefix) {
	for i, text := range texts {
		if prefix := c.block(fmt.Sprintf("%s[%d]", field, i), strings.TrimSpace(text)); prefix.IsValid() {
			all = append(all, prefix)
		}
	}
	return all
}

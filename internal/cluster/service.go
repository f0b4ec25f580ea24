package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Service is a Service with a cluster IP, reduced to what load balancing needs. Snapshots omit Services without one
// (headless, ExternalName) and Services of another proxy (label service.kubernetes.io/service-proxy-name).
type Service struct {
	Namespace, Name string
	// UID is that of the object, for Events; empty if it has none.
	UID string
	// ClusterIPs are spec.clusterIPs, at most one of each family.
	ClusterIPs []netip.Addr
	// ExternalIPs are spec.externalIPs.
	ExternalIPs []netip.Addr
	// LoadBalancerIPs are the addresses in status.loadBalancer of ipMode VIP: packets arrive with these destinations.
	LoadBalancerIPs []netip.Addr
	// LoadBalancerSources are the clients that may use LoadBalancerIPs; none means all.
	LoadBalancerSources []netip.Prefix
	Ports               []ServicePort
	// Affinity is the timeout of client IP affinity; 0 means none.
	Affinity time.Duration
	// InternalLocal and ExternalLocal keep internal and external traffic on the endpoints of the node that it
	// reaches.
	InternalLocal, ExternalLocal bool
	// HealthCheckNodePort is where load balancers check whether this node has endpoints; 0 means none.
	HealthCheckNodePort uint16
}

// Key gives namespace and name.
func (s *Service) Key() Key { return Key{s.Namespace, s.Name} }

// ServicePort is one port of a Service. Its Name is that of the port in EndpointSlices.
type ServicePort struct {
	Name     string
	Protocol Protocol
	Number   uint16
	// NodePort is the port on every node; 0 means none.
	NodePort uint16
}

// Labels that exclude a Service, or its EndpointSlices, from the proxy of the cluster.
const (
	labelServiceProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless         = corev1.IsHeadlessService
)

// ServiceSelector is the label selector of the Services and EndpointSlices in snapshots; the server need not send
// others.
const ServiceSelector = "!" + labelServiceProxyName + ",!" + labelHeadless

// concernsServices reports whether labels match ServiceSelector.
func concernsServices(labels map[string]string) bool {
	_, other := labels[labelServiceProxyName]
	_, headless := labels[labelHeadless]
	return !other && !headless
}

// reduceService checks a Service and reduces it; nil without errors if snapshots omit it.
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
		port := ServicePort{Name: Intern(p.Name), Protocol: c.protocol(at+".protocol", p.Protocol), Number: c.port(at+".port", p.Port)}
		if p.NodePort != 0 {
			port.NodePort = c.port(at+".nodePort", p.NodePort)
		}
		service.Ports = append(service.Ports, port)
	}
	return service, c.errs
}

// affinity is the timeout of client IP affinity, by default the API server's.
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

// blocks reads CIDRs. The API server accepts white space around them.
func (c *checks) blocks(field string, texts []string) (all []netip.Prefix) {
	for i, text := range texts {
		if prefix := c.block(fmt.Sprintf("%s[%d]", field, i), strings.TrimSpace(text)); prefix.IsValid() {
			all = append(all, prefix)
		}
	}
	return all
}

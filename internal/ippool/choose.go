package ippool

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// Pod is what decides about a pod's pool.
type Pod struct {
	Labels, NamespaceLabels, NodeLabels cluster.Labels
	// IPPools and NamespaceIPPools are the annotations of the pod and of its namespace.
	IPPools, NamespaceIPPools string
	// Network is what the network configuration of the interface names.
	Network string
}

// Choose gives the pools that a pod may have addresses of, in the order in which they are tried; none means an address of
// the cluster's pod range.
//
// The network configuration decides, then the pod's annotation, then that of its namespace, then the selectors of pools, then the default pools. Selectors
// restrict the pods of a pool in each case: else any tenant could name the pool of another. A list may name pools
// that are not usable beside usable ones; without a usable one it is an error. A disabled pool selects no pod. An invalid
// one that selects the pod is an error: the pod must not get an address of another network by somebody's typo.
func (s *Set) Choose(pod Pod) ([]*Pool, error) {
	for _, named := range []struct{ by, pools string }{
		{`field "ipPool" of the network configuration`, pod.Network},
		{"annotation " + v1alpha1.AnnotationIPPool + " of the pod", pod.IPPools},
		{"annotation " + v1alpha1.AnnotationIPPool + " of its namespace", pod.NamespaceIPPools},
	} {
		if named.pools == "" {
			continue
		}
		if strings.TrimSpace(named.pools) == v1alpha1.NoIPPool {
			return nil, nil
		}
		pools, err := s.named(named.pools, pod)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", named.by, err)
		}
		return pools, nil
	}
	pools, err := s.selecting(pod, func(p *Pool) bool { return p.Namespaces != nil || p.Pods != nil })
	if len(pools) > 0 || err != nil {
		return pools, err
	}
	return s.selecting(pod, func(p *Pool) bool { return p.Default })
}

// namesMax bounds the pools of an annotation: they are tried one after the other. nameMax is that of Kubernetes.
const (
	namesMax = 8
	nameMax  = validation.DNS1123SubdomainMaxLength
)

// named gives the usable ones of the named pools.
func (s *Set) named(list string, pod Pod) (pools []*Pool, err error) {
	all := strings.Split(list, ",")
	if len(all) > namesMax {
		return nil, fmt.Errorf("names %d pools, at most %d", len(all), namesMax)
	}
	var errs []error
	for _, name := range all {
		name = strings.TrimSpace(name)
		p := s.Pool(name)
		switch {
		case len(name) > nameMax: // it would be in the event and in the log with each attempt
			errs = append(errs, fmt.Errorf("there is no IPPool %q… (%d characters)", name[:20], len(name)))
		case p == nil:
			errs = append(errs, fmt.Errorf("there is no IPPool %q", name))
		case p.Invalid != "":
			errs = append(errs, p.invalid())
		case p.Disabled:
			errs = append(errs, fmt.Errorf("IPPool %s is disabled", name))
		case !p.permits(pod):
			errs = append(errs, fmt.Errorf("the selectors of IPPool %s do not select the pod on this node", name))
		default:
			pools = append(pools, p)
		}
	}
	if len(pools) == 0 {
		return nil, errors.Join(errs...)
	}
	return pools, nil
}

func (s *Set) selecting(pod Pod, candidate func(*Pool) bool) (pools []*Pool, err error) {
	for _, p := range s.Pools {
		if !candidate(p) || p.Disabled || !p.permits(pod) {
			continue
		}
		if p.Invalid != "" {
			return nil, p.invalid()
		}
		pools = append(pools, p)
	}
	return pools, nil
}

func (p *Pool) invalid() error { return fmt.Errorf("IPPool %s is invalid: %s", p.Name, p.Invalid) }

// permits reports whether the selectors select a pod.
func (p *Pool) permits(pod Pod) bool {
	return (p.Namespaces == nil || p.Namespaces.Matches(pod.NamespaceLabels)) && (p.Pods == nil || p.Pods.Matches(pod.Labels)) &&
		(p.Nodes == nil || p.Nodes.Matches(pod.NodeLabels))
}

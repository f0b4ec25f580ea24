package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/lab/suite/cluster/remote"
	"github.com/beeline-cni/beeline/lab/wait"
)

func isForbidden(err error) bool { return remote.IsForbidden(err) }

// Leftover is what a run has created and not deleted: one that crashed, or one that is still under way.
type Leftover struct {
	// Namespace is the run's own, or, with Objects, the one in which it has created so many pods and Services.
	Namespace string
	Objects   int
	Created   time.Time
}

func (l Leftover) String() string {
	age := time.Since(l.Created).Round(time.Second)
	if l.Objects > 0 {
		return fmt.Sprintf("%d pods and services in namespace %s, from %v ago", l.Objects, l.Namespace, age)
	}
	return fmt.Sprintf("namespace %s, from %v ago", l.Namespace, age)
}

// Leftovers finds what runs have created: their own namespaces, where no namespace is given, or their objects in
// the given one.
func Leftovers(ctx context.Context, api API, namespace string) ([]Leftover, error) {
	var list []Leftover
	if namespace == "" {
		spaces, err := api.Namespaces(ctx, everything)
		for _, n := range spaces {
			if n.Labels[labelRun] != "" { // else one that was prepared for the bench
				list = append(list, Leftover{Namespace: n.Name, Created: n.CreationTimestamp.Time})
			}
		}
		return list, err
	}
	l := Leftover{Namespace: namespace}
	pods, err := api.Pods(ctx, namespace, everything)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		l.Objects, l.Created = l.Objects+1, p.CreationTimestamp.Time
	}
	services, err := api.Services(ctx, namespace, everything)
	if err != nil {
		return nil, err
	}
	for _, s := range services {
		l.Objects, l.Created = l.Objects+1, s.CreationTimestamp.Time
	}
	if l.Objects > 0 {
		list = append(list, l)
	}
	return list, nil
}

// Remove deletes what Leftovers has found and waits until it is gone.
func Remove(ctx context.Context, api API, list []Leftover) error {
	ctx, cancel := context.WithTimeout(ctx, deleteWait)
	defer cancel()
	var errs []error
	for _, l := range list {
		if l.Objects > 0 {
			errs = append(errs, removeObjects(ctx, api, l.Namespace, everything))
		} else {
			errs = append(errs, removeNamespace(ctx, api, l.Namespace))
		}
	}
	return errors.Join(errs...)
}

// removeNamespace deletes a namespace with everything in it and waits until it is gone.
func removeNamespace(ctx context.Context, api API, name string) error {
	asked := false
	for {
		there := true
		var err error
		if !asked {
			err = api.DeleteNamespace(ctx, name)
			asked = err == nil
		}
		if asked {
			there, err = api.HasNamespace(ctx, name)
		}
		if err == nil && !there || isForbidden(err) {
			return err
		}
		if waited := wait.For(ctx, pollPeriod); waited != nil {
			return errors.Join(fmt.Errorf("wait for the end of namespace %s: %w", name, waited), err)
		}
	}
}

// removeObjects deletes the pods and Services that a selector matches and waits until they are gone.
func removeObjects(ctx context.Context, api API, namespace, selector string) error {
	for {
		left, err := deleteObjects(ctx, api, namespace, selector)
		if err == nil && left == 0 || isForbidden(err) {
			return err
		}
		if waited := wait.For(ctx, pollPeriod); waited != nil {
			return errors.Join(fmt.Errorf("wait for the end of pods and services in namespace %s: %w", namespace, waited), err)
		}
	}
}

// deleteObjects deletes objects that are not being deleted yet, and counts those that remain.
func deleteObjects(ctx context.Context, api API, namespace, selector string) (left int, err error) {
	pods, errPods := api.Pods(ctx, namespace, selector)
	services, errServices := api.Services(ctx, namespace, selector)
	errs := []error{errPods, errServices}
	for _, p := range pods {
		if p.DeletionTimestamp == nil {
			errs = append(errs, api.DeletePod(ctx, namespace, p.Name))
		}
	}
	for _, s := range services {
		if s.DeletionTimestamp == nil {
			errs = append(errs, api.DeleteService(ctx, namespace, s.Name))
		}
	}
	return len(pods) + len(services), errors.Join(errs...)
}

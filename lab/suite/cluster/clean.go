package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// created returns what runs have created: their own namespaces, where no namespace is given, or their pods and Services
// in the given one.
func created(ctx context.Context, api API, namespace, selector string) (list []remote.Object, err error) {
	if namespace == "" {
		var spaces corev1.NamespaceList
		err = api.List(ctx, &spaces, "", selector)
		for _, n := range spaces.Items {
			if n.Labels[labelRun] != "" { // else one that was prepared for the bench
				list = append(list, &n)
			}
		}
		return list, err
	}
	var pods corev1.PodList
	var services corev1.ServiceList
	err = errors.Join(api.List(ctx, &pods, namespace, selector), api.List(ctx, &services, namespace, selector))
	for _, p := range pods.Items {
		list = append(list, &p)
	}
	for _, s := range services.Items {
		list = append(list, &s)
	}
	return list, err
}

// Leftovers finds what runs have created: their own namespaces, where no namespace is given, or their objects in
// the given one.
func Leftovers(ctx context.Context, api API, namespace string) (list []Leftover, err error) {
	objects, err := created(ctx, api, namespace, everything)
	if namespace == "" {
		for _, n := range objects {
			list = append(list, Leftover{Namespace: n.GetName(), Created: n.GetCreationTimestamp().Time})
		}
	} else if len(objects) > 0 {
		list = append(list, Leftover{namespace, len(objects), objects[len(objects)-1].GetCreationTimestamp().Time})
	}
	return list, err
}

// Remove deletes what Leftovers finds and waits until it is gone.
func Remove(ctx context.Context, api API, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, deleteWait)
	defer cancel()
	return remove(ctx, api, namespace, everything)
}

// remove deletes what runs have created, of what a selector matches, and waits until it is gone.
func remove(ctx context.Context, api API, namespace, selector string) error {
	for {
		left, err := created(ctx, api, namespace, selector)
		for _, o := range left {
			if o.GetDeletionTimestamp() == nil {
				err = errors.Join(err, api.Delete(ctx, o))
			}
		}
		if err == nil && len(left) == 0 || isForbidden(err) {
			return err
		}
		if waited := wait.For(ctx, pollPeriod); waited != nil {
			return errors.Join(fmt.Errorf("wait for the end of %d namespaces, pods or services: %w", len(left), waited), err)
		}
	}
}

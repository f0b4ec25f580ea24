package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/cluster/v1alpha1"
)

// claimsName is the plural of IPClaims in URLs and in RBAC rules.
const claimsName = "ipclaims"

// Claims are the IPClaims of the API server. No list of them is part of snapshots: only the allocation of addresses needs
// them, and only where there are IPPools.
type Claims struct {
	client *rest.RESTClient
	source *Source
	log    *slog.Logger
}

// Claims gives the IPClaims of the server.
func (s *Source) Claims() *Claims {
	return &Claims{s.connection.clients[v1alpha1.SchemeGroupVersion], s, s.log}
}

// Create makes a claim, which allocates its address; cluster.ErrClaimExists if the address has one. After any other error
// it may exist or not.
func (c *Claims) Create(ctx context.Context, claim *cluster.IPClaim) (*cluster.IPClaim, error) {
	var made v1alpha1.IPClaim
	err := c.client.Post().MaxRetries(0).Resource(claimsName).Body(claimObject(claim)).Do(ctx).Into(&made)
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create IPClaim of %s: %w", claim.Address, cluster.ErrClaimExists)
	}
	return c.answer("create", claim.Address, &made, err)
}

// Update replaces a claim; cluster.ErrClaimChanged if it is not the one with the UID and Version of the new one.
func (c *Claims) Update(ctx context.Context, claim *cluster.IPClaim) (*cluster.IPClaim, error) {
	var made v1alpha1.IPClaim
	err := c.client.Put().MaxRetries(0).Resource(claimsName).Name(claim.Key().Name).Body(claimObject(claim)).Do(ctx).Into(&made)
	return c.answer("update", claim.Address, &made, changed(err))
}

// Delete deletes a claim, which releases its address; cluster.ErrClaimChanged if it is not the one with this UID and
// Version. A claim that does not exist is no error.
func (c *Claims) Delete(ctx context.Context, claim *cluster.IPClaim) error {
	uid := types.UID(claim.UID)
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &claim.Version}}
	err := c.client.Delete().MaxRetries(0).Resource(claimsName).Name(claim.Key().Name).Body(options).Do(ctx).Error()
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("delete IPClaim of %s: %w", claim.Address, changed(err))
}

// Get gives the claim of an address as the server has it now; nil if there is none.
func (c *Claims) Get(ctx context.Context, addr netip.Addr) (*cluster.IPClaim, error) {
	var read v1alpha1.IPClaim
	err := c.client.Get().MaxRetries(0).Resource(claimsName).Name(cluster.ClaimName(addr)).Do(ctx).Into(&read)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return c.answer("get", addr, &read, err)
}

func (c *Claims) answer(verb string, addr netip.Addr, read *v1alpha1.IPClaim, err error) (*cluster.IPClaim, error) {
	if err != nil {
		return nil, fmt.Errorf("%s IPClaim of %s: %w", verb, addr, err)
	}
	claim, err := reduceClaim(read)
	if err != nil {
		return nil, fmt.Errorf("%s IPClaim of %s: %w", verb, addr, err)
	}
	return claim, nil
}

// changed makes ErrClaimChanged of the server's errors for a failed precondition.
func changed(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errors.Join(cluster.ErrClaimChanged, err)
	}
	return err
}

// core is the client of the core group.
func (c *Claims) core() *rest.RESTClient {
	return c.source.connection.clients[corev1.SchemeGroupVersion]
}

// Follow keeps an index of all claims current until ctx ends.
func (c *Claims) Follow(ctx context.Context, index cluster.ClaimIndex) {
	w := &watcher{
		resource{name: claimsName, object: &v1alpha1.IPClaim{}, empty: &v1alpha1.IPClaimList{}}, c.client, c.source,
		func(full runtime.Object) (runtime.Object, error) { return full, nil },
	}
	w.follow(ctx, &claimStore{index: index, log: c.log})
}

// claimStore is what the reflector of claims writes to.
type claimStore struct {
	index cluster.ClaimIndex
	log   *slog.Logger
}

// read gives the claim of an object. An object with a strange name is not the claim of any address.
func (s *claimStore) read(object any) *cluster.IPClaim {
	full, ok := object.(*v1alpha1.IPClaim)
	if !ok {
		s.log.Error("watch of IPClaims", "error", fmt.Sprintf("%T is no IPClaim", object))
		return nil
	}
	claim, err := reduceClaim(full)
	if err != nil {
		s.log.Warn("IPClaim ignored", "error", err)
		return nil
	}
	return claim
}

// Add adds a claim.
func (s *claimStore) Add(object any) error { return s.Update(object) }

// Update replaces a claim.
func (s *claimStore) Update(object any) error {
	if claim := s.read(object); claim != nil {
		s.index.Set(claim)
	}
	return nil
}

// Delete removes a claim.
func (s *claimStore) Delete(object any) error {
	if claim := s.read(object); claim != nil {
		s.index.Remove(claim.Address)
	}
	return nil
}

// Replace replaces all claims.
func (s *claimStore) Replace(objects []any, _ string) error {
	all := make([]*cluster.IPClaim, 0, len(objects))
	for _, object := range objects {
		if claim := s.read(object); claim != nil {
			all = append(all, claim)
		}
	}
	s.index.Replace(all)
	return nil
}

// Resync does nothing: no event is ever lost.
func (s *claimStore) Resync() error { return nil }

// reduceClaim reads a claim. Its name says which address is allocated, whatever its spec says.
func reduceClaim(full *v1alpha1.IPClaim) (*cluster.IPClaim, error) {
	addr, err := cluster.ClaimAddress(full.Name)
	if err != nil {
		return nil, fmt.Errorf("IPClaim %s: %w", full.Name, err)
	}
	c := &cluster.IPClaim{
		Address: addr, Pool: cluster.Intern(full.Spec.Pool), Node: cluster.Intern(full.Spec.Node),
		Namespace: cluster.Intern(full.Spec.Pod.Namespace), Pod: full.Spec.Pod.Name, PodUID: full.Spec.Pod.UID,
		ContainerID: full.Spec.ContainerID, IfName: cluster.Intern(full.Spec.IfName), UID: string(full.UID), Version: full.ResourceVersion,
		Created: full.CreationTimestamp.UTC(),
	}
	if full.Spec.Owner.Kind == v1alpha1.KindStatefulSet {
		c.StatefulSet = cluster.Intern(full.Spec.Owner.Name)
	}
	if conflict := full.Status.Conflict; conflict != nil {
		c.Conflict, c.ConflictReason = conflict.Time.UTC(), conflict.Reason
	}
	return c, nil
}

// claimObject makes the object of a claim.
func claimObject(c *cluster.IPClaim) *v1alpha1.IPClaim {
	full := &v1alpha1.IPClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "IPClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: c.Key().Name, UID: types.UID(c.UID), ResourceVersion: c.Version},
		Spec: v1alpha1.IPClaimSpec{
			Address: c.Address.String(), Pool: c.Pool, Node: c.Node, ContainerID: c.ContainerID, IfName: c.IfName,
			Pod: v1alpha1.IPClaimPod{Namespace: c.Namespace, Name: c.Pod, UID: c.PodUID},
		},
	}
	if c.StatefulSet != "" {
		full.Spec.Owner = v1alpha1.IPClaimOwner{Kind: v1alpha1.KindStatefulSet, Name: c.StatefulSet}
	}
	if c.Conflicts() {
		full.Status.Conflict = &v1alpha1.IPClaimConflict{Time: metav1.NewTime(c.Conflict), Reason: c.ConflictReason}
	}
	return full
}

package cni

import (
	"github.com/containernetworking/cni/pkg/types"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// podArgs are the keys of CNI_ARGS that Kubernetes runtimes set. The CNI library finds them by field name.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE          types.UnmarshallableString
	K8S_POD_NAME               types.UnmarshallableString
	K8S_POD_UID                types.UnmarshallableString
	K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString
}

// parsePod reads CNI_ARGS. An unknown key is an error unless IgnoreUnknown is set.
func parsePod(args string) (agentapi.PodRef, error) {
	var parsed podArgs
	if err := types.LoadArgs(args, &parsed); err != nil {
		return agentapi.PodRef{}, types.NewError(types.ErrInvalidEnvironmentVariables, "invalid CNI_ARGS: "+err.Error(), "")
	}
	return agentapi.PodRef{
		Namespace: string(parsed.K8S_POD_NAMESPACE),
		Name:      string(parsed.K8S_POD_NAME),
		UID:       string(parsed.K8S_POD_UID),
	}, nil
}

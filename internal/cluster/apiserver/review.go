package apiserver

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// Allowed asks the API server which user a bearer token belongs to, and whether that user may get a non-resource path
// (`nonResourceURLs`). An empty user means that the token is invalid. The error is for a failed request.
func (r *Reporter) Allowed(ctx context.Context, token, path string) (user string, allowed bool, err error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := r.connection.clients[authenticationv1.SchemeGroupVersion].Post().Resource("tokenreviews").Body(who).Do(ctx).Into(who); err != nil {
		return "", false, fmt.Errorf("review token: %w", err)
	}
	if !who.Status.Authenticated || who.Status.User.Username == "" {
		return "", false, nil
	}
	access := authorizationv1.SubjectAccessReviewSpec{
		User: who.Status.User.Username, UID: who.Status.User.UID, Groups: who.Status.User.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}
	for key, values := range who.Status.User.Extra {
		access.Extra[key] = authorizationv1.ExtraValue(values)
	}
	may := &authorizationv1.SubjectAccessReview{Spec: access}
	if err := r.connection.clients[authorizationv1.SchemeGroupVersion].Post().Resource("subjectaccessreviews").Body(may).Do(ctx).Into(may); err != nil {
		return "", false, fmt.Errorf("review access of %s: %w", who.Status.User.Username, err)
	}
	if may.Status.EvaluationError != "" && !may.Status.Allowed {
		return "", false, fmt.Errorf("review access of %s: %w", who.Status.User.Username, errors.New(may.Status.EvaluationError))
	}
	return who.Status.User.Username, may.Status.Allowed, nil
}

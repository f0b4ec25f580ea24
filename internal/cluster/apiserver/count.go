package apiserver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CountNodes gives the number of Nodes. It lists one Node and reads the remaining count; it does not retry.
func (s *Source) CountNodes(ctx context.Context) (int, error) {
	var first corev1.NodeList
	client := s.connection.clients[corev1.SchemeGroupVersion]
	if err := client.Get().MaxRetries(0).Resource("nodes").VersionedParams(&metav1.ListOptions{Limit: 1}, parameterCodec).Do(ctx).Into(&first); err != nil {
		return 0, fmt.Errorf("count nodes: %w", err)
	}
	count := len(first.Items)
	if rest := first.RemainingItemCount; rest != nil {
		count += int(*rest)
	}
	return count, nil
}

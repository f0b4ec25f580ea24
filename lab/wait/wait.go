// Package wait waits.
package wait

import (
	"context"
	"time"
)

// For waits, or returns the context's error when that ends first.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

package apiserver

import "log/slog"

// Reporter tells the API server about this node.
type Reporter struct{}

func newReporter(c *connection, nodeName string, source *Source, log *slog.Logger) *Reporter {
	return &Reporter{}
}

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// stream responds with a line of JSON for each value as it comes, until do returns. An error before the first line
// gets an error response; a later one ends the connection.
func stream[Req, Line any](do func(context.Context, Req, func(Line) error) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, ok := posted[Req](w, r)
		if !ok {
			return
		}
		// The server's deadlines are for responses that end. The end of the client shows as the end of its
		// connection.
		conn := http.NewResponseController(w)
		if err := errors.Join(conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})); err != nil {
			reject(w, agentapi.Errorf(agentapi.CodeInternal, "prepare stream: %v", err))
			return
		}
		begun := false
		err := do(r.Context(), req, func(line Line) error {
			var out bytes.Buffer
			if err := json.NewEncoder(&out).Encode(line); err != nil {
				return err
			}
			if !begun {
				w.Header().Set("Content-Type", "application/x-ndjson")
				begun = true
			}
			// A client that does not read must not block a goroutine for ever.
			if err := conn.SetWriteDeadline(time.Now().Add(streamPatience)); err != nil {
				return err
			}
			if _, err := w.Write(out.Bytes()); err != nil {
				return err
			}
			return conn.Flush()
		})
		if err != nil && !begun {
			respond(w, func() (struct{}, error) { return struct{}{}, err })
		}
	})
}

// streamPatience bounds the time of writing a line.
const streamPatience = time.Minute

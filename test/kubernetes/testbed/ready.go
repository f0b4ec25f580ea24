package testbed

import (
	"context"
	"fmt"
	"strings"

	"github.com/beeline-cni/beeline/test/program"
)

func (b *Testbed) apiServerReady() (bool, error) {
	answer, err := b.Kubectl(context.Background(), "get", "--raw", "/readyz", "--request-timeout=2s")
	return answer == "ok", err
}

// awaitAll waits until objects of the kind exist, and of all the wanted, positive number is ready. The error describes the
// pods.
func (b *Testbed) awaitAll(ctx context.Context, kind, wanted, ready string) error {
	err := b.await(ctx, "the "+kind, func() (bool, error) {
		out, err := b.Kubectl(ctx, "get", kind, "-A", "-o", `jsonpath={range .items[*]}`+wanted+` `+ready+`{"\n"}{end}`)
		if err != nil || out == "" {
			return false, err
		}
		for line := range strings.Lines(out) {
			counts := strings.Fields(line)
			if len(counts) != 2 || counts[0] != counts[1] || counts[0] == "0" {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return b.explain(ctx, err)
	}
	return nil
}

// applyManifest applies YAML text.
func (b *Testbed) applyManifest(ctx context.Context, manifest string) error {
	cmd := b.Command(ctx, "kubectl", "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	_, err := program.Output(cmd)
	return err
}

// explain adds the state of the pods and the latest warnings to an error.
func (b *Testbed) explain(ctx context.Context, err error) error {
	for _, look := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "events", "-A", "--field-selector=type=Warning", "--sort-by=.lastTimestamp", "-o",
			`jsonpath={range .items[-8:]}{.involvedObject.kind}/{.involvedObject.name}: {.reason}: {.message}{"\n"}{end}`},
	} {
		out, lookErr := b.Kubectl(ctx, look...)
		if lookErr != nil {
			out = lookErr.Error()
		}
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return err
}

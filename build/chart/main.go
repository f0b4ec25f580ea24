// Command chart renders a Helm chart as `helm template` does, with Helm's own engine, to standard output:
//
//	chart -namespace NAMESPACE [-kubernetes VERSION] CHART [KEY=VALUE...]
//
// Documents are in the order in which `kubectl apply` wants them. It is a module of its own, because nothing else needs Helm.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
)

// withAdmissionPolicies is the first version of Kubernetes that has ValidatingAdmissionPolicies. Helm's library alone assumes 1.20.
const withAdmissionPolicies = "v1.30.0"

func main() {
	namespace := flag.String("namespace", "default", "namespace of the release")
	kubernetes := flag.String("kubernetes", withAdmissionPolicies, "`version` of the cluster")
	flag.Parse()
	if err := run(os.Stdout, *namespace, *kubernetes, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "chart: %v\n", err)
		os.Exit(1)
	}
}

func run(out io.Writer, namespace, kubernetes string, args []string) error {
	if len(args) == 0 {
		return errors.New("a chart's directory is needed")
	}
	chart, err := loader.Load(args[0])
	if err != nil {
		return fmt.Errorf("load chart: %w", err)
	}
	values := map[string]any{}
	for _, set := range args[1:] {
		if err := strvals.ParseInto(set, values); err != nil {
			return fmt.Errorf("read value %s: %w", set, err)
		}
	}
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return fmt.Errorf("read version %s of Kubernetes: %w", kubernetes, err)
	}
	cluster := chartutil.DefaultCapabilities.Copy()
	cluster.KubeVersion = *version
	// This also checks the values against the chart's schema.
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: chart.Name(), Namespace: namespace, Revision: 1, IsInstall: true}, cluster)
	if err != nil {
		return fmt.Errorf("combine values: %w", err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return fmt.Errorf("render: %w", err)
	}
	_, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return fmt.Errorf("sort: %w", err)
	}
	for n, m := range manifests {
		if n > 0 {
			fmt.Fprintln(out, "---")
		}
		fmt.Fprintln(out, strings.TrimSpace(m.Content))
	}
	return nil
}

// Package deploy tests what runs Beeline on a cluster: the manifests, the chart and the image.
package deploy

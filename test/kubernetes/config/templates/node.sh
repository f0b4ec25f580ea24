# The services of a node. keep is in machine/boot.sh.
dir={{.Dir}}

keep containerd '' containerd --config=$dir/containerd.toml &
keep kubelet '{{.Socket}} {{.Images}} {{.Ready}}' kubelet \
	--config=$dir/kubelet.yaml --kubeconfig=$dir/kubelet.kubeconfig \
	--root-dir=/var/lib/kubelet --node-ip={{.Addresses}} &
{{- if .Proxy}}
keep kube-proxy {{.Ready}} kube-proxy --config=$dir/kube-proxy.yaml &
{{- end}}

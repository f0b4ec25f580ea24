# The services of the control plane. keep is in machine/boot.sh.
etcd=http://127.0.0.1:2379 # private to the control plane's network namespace, so it needs no certificates
dir={{.Dir}}
ready={{.Ready}}

# The data need not outlive the cluster.
keep etcd '' etcd \
	--data-dir=/var/lib/etcd --unsafe-no-fsync \
	--listen-client-urls=$etcd --advertise-client-urls=$etcd --listen-peer-urls=http://127.0.0.1:2380 &

# The control plane has no kube-proxy, so it needs --enable-aggregator-routing.
keep kube-apiserver /var/lib/etcd/member kube-apiserver \
	--etcd-servers=$etcd \
	--advertise-address={{.Address}} \
	--secure-port={{.Port}} \
	--allow-privileged \
	--authorization-mode=Node,RBAC \
	--enable-admission-plugins=NodeRestriction \
	--service-cluster-ip-range={{.ServiceRanges}} \
	--client-ca-file=$dir/ca.crt \
	--tls-cert-file=$dir/apiserver.crt --tls-private-key-file=$dir/apiserver.key \
	--kubelet-client-certificate=$dir/kubelet-client.crt --kubelet-client-key=$dir/kubelet-client.key \
	--kubelet-certificate-authority=$dir/ca.crt \
	--kubelet-preferred-address-types=InternalIP \
	--requestheader-client-ca-file=$dir/front-proxy-ca.crt \
	--requestheader-allowed-names=front-proxy-client \
	--requestheader-extra-headers-prefix=X-Remote-Extra- \
	--requestheader-group-headers=X-Remote-Group \
	--requestheader-username-headers=X-Remote-User \
	--proxy-client-cert-file=$dir/front-proxy-client.crt --proxy-client-key-file=$dir/front-proxy-client.key \
	--enable-aggregator-routing \
	--service-account-issuer=https://kubernetes.default.svc.{{.Domain}} \
	--service-account-key-file=$dir/service-accounts.key --service-account-signing-key-file=$dir/service-accounts.key &

keep kube-controller-manager $ready kube-controller-manager \
	--kubeconfig=$dir/kube-controller-manager.kubeconfig \
	--authentication-kubeconfig=$dir/kube-controller-manager.kubeconfig \
	--authorization-kubeconfig=$dir/kube-controller-manager.kubeconfig \
	--allocate-node-cidrs \
	--cluster-cidr={{.PodRanges}} \
	--service-cluster-ip-range={{.ServiceRanges}} \
	--use-service-account-credentials \
	--service-account-private-key-file=$dir/service-accounts.key \
	--root-ca-file=$dir/ca.crt \
	--cluster-signing-cert-file=$dir/ca.crt --cluster-signing-key-file=$dir/ca.key \
	--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins \
	--leader-elect=false &

keep kube-scheduler $ready kube-scheduler \
	--kubeconfig=$dir/kube-scheduler.kubeconfig \
	--authentication-kubeconfig=$dir/kube-scheduler.kubeconfig \
	--authorization-kubeconfig=$dir/kube-scheduler.kubeconfig \
	--leader-elect=false &

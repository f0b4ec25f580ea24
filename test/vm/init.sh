#!/bin/busybox sh
# The only program of the machine: runs the tests and copies their output to the second serial port.
/bin/busybox --install -s /bin
# The kernel passes unknown parameters as variables: "part" is this machine's part of the tests, "device" the kind of pods' devices.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root BEELINE_REQUIRE="$(cat /require)" BEELINE_DEVICE="$device"
mkdir -p /proc /sys /dev /tmp /run /root /var /etc /sbin
ln -s /run /var/run
ln -s /bin/modprobe /sbin/modprobe
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts && mount -t devpts pts /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
mount --make-rshared /
ip link set lo up
# The kernel loads some of these on demand, but not reliably tcx, clsact and nftables expressions.
for module in veth sch_ingress cls_bpf nf_tables nft_masq nft_ct nft_nat nft_chain_nat nft_fib_inet dummy macvlan bridge vxlan wireguard xfrm_user xfrm_interface esp4 esp6 tun; do
	modprobe "$module" 2>/dev/null
done

# BusyBox's shell prefers its own applets to the programs of these names.
[ ! -e /usr/bin/dash ] || ln -sf /usr/bin/dash /bin/sh
[ ! -d /builds ] || export BEELINE_BUILDS=/builds BEELINE_BIN=/builds/current
export BEELINE_PATIENCE=5

stty raw -echo </dev/ttyS1
exec 3>/dev/ttyS1
while read -r dir; do
	cd "/src/$dir"
	[ -e "vm.run.$part" ] || continue
	echo "@vm begin $dir" >&3
	# One test at a time: there is one CPU, a slow one, and tests wait for what they start only so long.
	./vm.test -test.v=test2json -test.parallel=1 -test.timeout=4h -test.run="$(cat "vm.run.$part")" -test.skip="$(cat /skip)" >&3 2>&1 ||
		printf '\n\026FAIL\n' >&3
	printf '\n@vm end %s\n' "$dir" >&3
done </tests
echo "@vm done" >&3
exec 3>&-
poweroff -f

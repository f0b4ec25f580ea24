#!/bin/sh
# Process 1 of a machine: it joins the machine's cgroups, builds the machine's file system around itself, keeps the
# machine's services running, and reaps orphans. /usr is this machine's; all writable files are the machine's own. Start
# sets its variables.
set -eu

if [ -z "${joined-}" ]; then
	# It is in the machine's cgroup v2 from its start, so that a kill of that cgroup always ends the machine.
	while read -r mount _; do
		[ -n "$mount" ] || continue
		for group in "$mount/$CGROUP" "$mount/$CGROUP/$NAME"; do
			mkdir -p "$group"
			# A new cpuset is empty.
			for file in cpuset.cpus cpuset.mems; do
				[ ! -e "$group/$file" ] || cat "$group/../$file" >"$group/$file"
			done
		done
		echo $$ >"$group/cgroup.procs"
	done <<-END
		$V1
	END
	# The kubelet uses the controllers of v2 only without v1.
	for above in "$V2" "$V2/$CGROUP"; do
		[ -z "$V1" ] || continue
		read -r controllers <"$above/cgroup.controllers"
		for controller in $controllers; do
			echo "+$controller" >"$above/cgroup.subtree_control"
		done
	done
	exec env joined=1 unshare --cgroup sh "$0"
fi
# A cgroup v2 cannot have both processes and children with controllers.
if grep -q . "$V2/$CGROUP/$NAME/cgroup.controllers"; then
	mkdir -p "$V2/$CGROUP/$NAME/services"
	echo $$ >"$V2/$CGROUP/$NAME/services/cgroup.procs"
fi
echo "$NAME" >/proc/sys/kernel/hostname

# The disk outlives a reboot.
new=
[ -L "$DISK/var/run" ] || new=1
(cd "$DISK" && mkdir -p var/lib var/cache var/tmp opt tmp etc.upper etc.work root)
chmod 1777 "$DISK/tmp" "$DISK/var/tmp"
ln -sfn /run "$DISK/var/run"

mount --make-rprivate /
mount -t tmpfs -o mode=755,size=16m root "$DISK/root"
cd "$DISK/root"
mkdir usr etc var opt tmp run dev proc sys root home mnt media srv .old .sysctls
read_only() {
	mount --rbind "$1" ".$1"
	mount -o remount,bind,ro ".$1"
}
read_only /usr
for dir in /bin /sbin /lib /lib32 /lib64 /libx32; do # or links into /usr
	if [ -L $dir ]; then
		cp -P $dir .
	elif [ -e $dir ]; then
		mkdir .$dir
		read_only $dir
	fi
done
mount -t overlay -o "lowerdir=/etc,upperdir=$DISK/etc.upper,workdir=$DISK/etc.work" etc etc
for dir in var opt tmp; do
	mount --rbind "$DISK/$dir" $dir
done
mount -t tmpfs -o nosuid,nodev,mode=755,size=256m run run
mkdir -p ".$DIR" ".$BIN"
mount --rbind "$DIR" ".$DIR"
mount -t overlay -o "ro,lowerdir=$BINARIES" binaries ".$BIN"
mount --rbind /dev dev
mount -t tmpfs -o nosuid,nodev,mode=1777 shm dev/shm
quiet=nosuid,nodev,noexec
mount -t proc -o $quiet proc proc
mount -t sysfs -o $quiet sysfs sys
mount -t bpf -o $quiet,mode=700 bpf sys/fs/bpf

# In the cgroup namespace, the machine's cgroup is the root of each hierarchy.
[ -z "$V1" ] || mount -t tmpfs -o $quiet,mode=755 cgroup sys/fs/cgroup
while read -r mount options; do
	[ -n "$mount" ] || continue
	mkdir -p ".$mount"
	mount -t cgroup -o "$quiet,$options" cgroup ".$mount"
done <<-END
	$V1
END
mkdir -p ".$V2"
mount -t cgroup2 -o $quiet cgroup2 ".$V2"

# Settings of the whole machine that the kubelet would change: it finds these values and changes nothing.
while read -r setting value; do
	echo "$value" >".sysctls/$setting"
	mount --bind ".sysctls/$setting" "proc/sys/$(echo "$setting" | tr . /)"
done <<-END
	vm.overcommit_memory 1
	vm.panic_on_oom 0
	kernel.panic 10
	kernel.panic_on_oops 1
END

# A new disk has no CNI configurations of this machine.
[ -z "$new" ] || rm -rf etc/cni
cd etc
rm -f hostname hosts resolv.conf machine-id # some may be symbolic links
echo "$NAME" >hostname
cp "$DIR/hosts" hosts
chmod 644 hosts
echo '# There is no name server outside of the cluster.' >resolv.conf
echo "$NAME" | md5sum | cut -c -32 >machine-id

cd ..
pivot_root . .old
cd /
umount -l .old
rmdir .old
mount --make-rshared / # as the kubelet and privileged pods expect

# keep NAME FILES PROGRAM [ARGUMENT]... runs a program once the files exist, and again when it ends. States reads its
# state.
keep() {
	log=/var/log/components/$1
	for file in $2; do
		until [ -e "$file" ]; do
			sleep 0.1
		done
	done
	shift 2
	ended=0
	status=0
	while :; do
		state "running $ended $status"
		status=0
		setsid "$@" </dev/null >>"$log.log" 2>&1 || status=$?
		ended=$((ended + 1))
		state "ended $ended $status"
		sleep 1
	done
}
state() {
	echo "$1" >"$log.next"
	mv "$log.next" "$log.state"
}
rm -f /var/log/components/*.state
services=$DIR/services.sh
unset NAME DISK DIR BIN BINARIES CGROUP V1 V2 joined
# shellcheck source=/dev/null
. "$services"
wait

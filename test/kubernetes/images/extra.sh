#!/bin/sh
# Makes one of the images' own trees in this directory: extra.sh TREE BASE. BASE is the tree of Debian packages of the
# same image.
set -eu
base=$2

mkdir -m 1777 tmp
mkdir -m 700 root
mkdir -p etc usr/bin usr/local/bin
cat >etc/passwd <<'END'
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
END
cat >etc/group <<'END'
root:x:0:
nogroup:x:65534:
END

case $1 in
agnhost-files)
	ln -s agnhost agnhost-2
	mkdir -m 777 uploads
	echo 'user-defined-in-image:x:1000:1000::/:/bin/sh' >>etc/passwd
	cat >>etc/group <<'END'
user-defined-in-image:x:1000:
group-defined-in-image:x:50000:user-defined-in-image
END
	echo 'hosts: files dns' >etc/nsswitch.conf
	# GNU wget tries twenty times; the tests count on one.
	echo 'tries = 1' >etc/wgetrc
	ln -s /usr/bin/iperf usr/local/bin/iperf
	ln -s nc.openbsd usr/bin/nc
	ln -s mawk usr/bin/awk
	;;
applets) # busybox gets the names of its programs, as its own --install would do
	loader=$base/lib64/ld-linux-x86-64.so.2
	for name in $("$loader" --library-path "$base/lib/x86_64-linux-gnu" "$base/bin/busybox" --list); do
		[ "$name" = busybox ] || ln -s /bin/busybox "usr/bin/$name"
	done
	mkdir www
	echo '<!DOCTYPE html><title>Welcome to nginx!</title>' >www/index.html
	;;
*)
	echo "no tree $1" >&2
	exit 1
	;;
esac

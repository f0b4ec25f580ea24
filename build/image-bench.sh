#!/bin/sh
# Makes the image that `beeline-lab bench --kubeconfig` runs in pods: build/image-bench.sh OUT.tar NAME. It contains
# beeline-bench, the traffic tools and their libraries as installed here (make deps), and the copyright files of their
# Debian packages. Nothing is downloaded.
set -eu

if [ $# != 2 ]; then
	echo "usage: build/image-bench.sh OUT.tar NAME" >&2
	exit 2
fi
out=$1
name=$2
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# dash is the shell that starts the tools at the same time.
tools="netperf netserver iperf3 sockperf redis-benchmark redis-server wrk nginx dash"
echo "image-bench: collecting $tools" >&2
files=
for tool in $tools; do
	if ! file=$(command -v "$tool"); then
		echo "image-bench: $tool is not installed (make deps installs it)" >&2
		exit 1
	fi
	files="$files $file"
done

# The libraries keep their paths, as files: links would lead out of the image.
# shellcheck disable=SC2086 # one word for each file
libraries=$(ldd $files | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// && $1 !~ /:$/ { print $1 }' | sort -u)
set --
for file in $files; do
	set -- "$@" "$file=/usr/bin/$(basename "$file")"
done
for library in $libraries; do
	set -- "$@" "$(readlink -f "$library")=$library"
done
for file in $files $libraries; do
	real=$(readlink -f "$file")
	# dpkg may know a file by its path before /usr was merged.
	package=$(dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}" 2>/dev/null || true)
	package=${package%%:*}
	if [ -z "$package" ] || [ ! -e "/usr/share/doc/$package/copyright" ]; then
		echo "image-bench: no package has $real: its licence is unknown" >&2
		exit 1
	fi
	cp "/usr/share/doc/$package/copyright" "$work/$package"
done
mkdir "$work/doc"
for copyright in "$work"/*; do
	[ -d "$copyright" ] && continue
	mkdir "$work/doc/$(basename "$copyright")"
	mv "$copyright" "$work/doc/$(basename "$copyright")/copyright"
done
ln -s /usr/bin/dash "$work/sh"

echo "image-bench: building beeline-bench" >&2
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/beeline-bench" ./cmd/beeline-bench

echo "image-bench: packing $out" >&2
mkdir -p "$(dirname "$out")"
go -C build/image build -o "$work/pack-image" .
"$work/pack-image" -o "$out" -name "$name" -entrypoint "/usr/bin/beeline-bench wait" -env PATH=/usr/bin -user 65534:65534 \
	"$work/beeline-bench=/usr/bin/beeline-bench" "$work/sh=/bin/sh" "$work/doc=/usr/share/doc" LICENSE=/usr/share/doc/beeline/copyright "$@"
echo "image-bench: $(du -h "$out" | cut -f1) $out, image $name" >&2

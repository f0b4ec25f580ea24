#!/bin/sh
# Unpacks Debian packages with all their dependencies into the directory tree, without the paths in $unwanted, and runs
# no scripts of theirs: debian.sh PACKAGE... apt works with an empty list of installed packages, and installs nothing.
set -eu

mkdir -p archives/partial
: >status
fetch() {
	apt-get -q -y -o Dir::State::status="$PWD/status" -o Dir::Cache::archives="$PWD/archives" -o Debug::NoLocking=1 \
		-o APT::Sandbox::User=root install --download-only --no-install-recommends "$@"
}
fetch "$@" || { # package lists may be missing or out of date
	apt-get -q update
	fetch "$@"
}
# Links into /usr in Debian; packages may still have files in them.
for dir in bin sbin lib lib64; do
	mkdir -p tree/usr/$dir
	ln -s usr/$dir tree/$dir
done
for archive in archives/*.deb; do
	dpkg-deb --fsys-tarfile "$archive" | tar -C tree --extract --keep-directory-symlink
done
cd tree
# shellcheck disable=SC2086,SC2154 # patterns, from the environment
rm -rf $unwanted

#!/bin/sh
# Downloads a Debian package into this directory and unpacks it into tree: download.sh NAME PATTERN SUITE. NAME may
# depend on the newest kernel of its kind, which is then downloaded instead. Without NAME, it is the newest package that
# matches PATTERN. SUITE is one of the archive of this machine's release, by sources and lists of its own: nothing here
# changes.
set -eu
name=$1 pattern=$2 suite=$3

if [ -n "$suite" ]; then
	# shellcheck disable=SC2016 # apt's variables, not the shell's
	uri=$(apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
		awk '$1 == "Debian" && $2 == "main" && $3 !~ /-/ { print $4; exit }')
	[ -n "$uri" ] || { echo "none of this machine's package sources is a release of Debian" >&2; exit 1; }
	mkdir -p apt/sources apt/lists/partial
	cat >apt/sources/suite.sources <<-END
		Types: deb
		URIs: $uri
		Suites: $suite
		Components: main
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
	END
	cat >apt/apt.conf <<-END
		Dir::Etc::sourcelist "/dev/null";
		Dir::Etc::sourceparts "$PWD/apt/sources";
		Dir::State::lists "$PWD/apt/lists";
		Dir::Cache::pkgcache "";
		Dir::Cache::srcpkgcache "";
		Acquire::Languages "none";
	END
	export APT_CONFIG="$PWD/apt/apt.conf"
fi

package() {
	if [ -n "$pattern" ]; then
		apt-cache search --names-only "$pattern" | cut -d ' ' -f 1 | sort -V | tail -n 1
	else
		apt-cache --no-all-versions show "$name" | awk '
			/^Package:/ { found = $2 }
			/^Depends: linux-image-/ { sub(",", "", $2); found = $2 }
			END { print found }'
	fi
}
found=$(package)
if [ -z "$found" ]; then # package lists may be missing or out of date
	apt-get -q update >&2
	found=$(package)
fi
if [ -z "$found" ]; then
	echo "no package $name$pattern (Debian's security updates must be among this machine's package sources)" >&2
	exit 1
fi
apt-get -q -o APT::Sandbox::User=root download "$found"
dpkg-deb -x ./*.deb tree

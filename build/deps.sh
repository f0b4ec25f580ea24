#!/bin/sh
# Installs missing Debian packages: build/deps.sh [lab] [bench] [test] [cluster].
# Without arguments: all of them. It does not change the package sources.
set -eu

PATH=$PATH:/usr/sbin:/sbin
GO_NEEDED=$(sed -n 's/^go //p' "$(dirname "$0")/../go.mod")

# use:   bench includes lab; test and cluster include bench
# proof: a command or path that exists if the package is installed
# use | proof | package | why
packages() {
	sed 's/[[:space:]]*|[[:space:]]*/|/g' <<'TABLE'
bench|netperf                  |netperf                   |request, stream and connection workloads
bench|iperf3                   |iperf3                    |stream workloads with several senders, UDP loss
bench|sockperf                 |sockperf                  |round-trip times
bench|redis-benchmark          |redis-tools               |requests to a key-value store
bench|redis-server             |redis-server              |the store
bench|wrk                      |wrk                       |HTTP requests
bench|nginx                    |nginx                     |the web server
bench|/usr/lib/cni/ptp         |containernetworking-plugins|the reference CNI plugins: networks bridge, ptp, macvlan
bench|nft                      |nftables                  |rules of the networks with netfilter
bench|iptables                 |iptables                  |the reference plugins masquerade with it
lab  |ip                       |iproute2                  |making network namespaces; tests compare with it
lab  |mount                    |mount                     |a lab's nodes have mounts of their own
lab  |ping                     |iputils-ping              |pings between pods of a lab; tests of ICMP
bench|sysctl                   |procps                    |settings of a lab's nodes
bench|modprobe                 |kmod                      |kernel modules, where the kernel has them
bench|ethtool                  |ethtool                   |offloads of the devices under test
test |bpftool                  |bpftool                   |looking at programs and maps
test |clang-19                 |clang-19                  |compiles the BPF programs (make generate)
test |llvm-strip-19            |llvm-19                   |strips the BPF objects (make generate)
test |clang-format-19          |clang-format-19           |checks the C sources (make lint)
test |shellcheck               |shellcheck                |checks the shell scripts (make lint)
test |mmdebstrap               |mmdebstrap                |makes a clean Debian to run the README in
test |qemu-system-x86_64       |qemu-system-x86           |boots other kernels (make test-vm)
test |xz                       |xz-utils                  |unpacks kernel modules (make test-vm)
test |jq                       |jq                        |names the test that runs (build/gotestsum.sh)
cluster|runc                  |runc                      |runs the containers of a cluster (make cluster)
cluster|nsenter               |util-linux                |runs commands in the machines of a cluster
TABLE
}

there() {
	case $1 in
	/*) [ -e "$1" ] ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

# The URI of this release's main component, as configured in apt.
release_uri() {
	# shellcheck disable=SC2016 # apt's variables, not the shell's
	apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
		awk -v codename="$VERSION_CODENAME" '$2 == codename && $3 == "main" && $4 == "Debian" { print $1; exit }'
}

# fetch_nonfree PACKAGE DIR: downloads from non-free, with apt sources and lists of its own below DIR.
fetch_nonfree() {
	mkdir -p "$2/sources" "$2/lists/partial"
	cat >"$2/sources/nonfree.sources" <<-SOURCES
		Types: deb
		URIs: $(release_uri)
		Suites: $VERSION_CODENAME
		Components: non-free
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
	SOURCES
	cat >"$2/apt.conf" <<-CONF
		Dir::Etc::sourcelist "/dev/null";
		Dir::Etc::sourceparts "$2/sources";
		Dir::State::lists "$2/lists";
		APT::Sandbox::User "root";
	CONF
	(
		cd "$2"
		export APT_CONFIG="$2/apt.conf"
		apt-get -q update
		apt-get -q download "$1"
	)
}

# This file keeps packages from starting their servers.
POLICY=/usr/sbin/policy-rc.d
MARK='# put here by beeline build/deps.sh while packages are installed'
keep_services_down() {
	[ -e "$POLICY" ] && return
	printf '#!/bin/sh\n%s\nexit 101\n' "$MARK" >"$POLICY"
	chmod 755 "$POLICY"
}
cleanup() {
	if grep -qsF "$MARK" "$POLICY"; then rm -f "$POLICY"; fi
	rm -rf "$work"
}

if ! command -v go >/dev/null; then
	echo "deps: Go is missing. Install Go $GO_NEEDED or later (Debian 12's own package is too old)." >&2
	exit 1
fi

for use in "$@"; do
	case $use in
	lab | bench | test | cluster) ;;
	*)
		echo "deps: $use is none of lab, bench, test, cluster; without arguments all are installed" >&2
		exit 2
		;;
	esac
done
uses=" ${*:-bench test cluster} "
case $uses in *" test "* | *" cluster "*) uses="${uses}bench " ;; esac
case $uses in *" bench "*) uses="${uses}lab " ;; esac
missing=
reasons=
while IFS='|' read -r use proof package why; do
	case $uses in *" $use "*) ;; *) continue ;; esac
	there "$proof" && continue
	missing="$missing $package"
	reasons="$reasons$(printf '  %-28s %s' "$package" "$why")
"
done <<EOT
$(packages)
EOT
if [ -z "$missing" ]; then
	echo "deps: nothing is missing"
	exit
fi

echo "deps: missing Debian packages:"
printf '%s' "$reasons"
if [ "$(id -u)" != 0 ]; then
	echo "deps: run as root to install them, or: apt-get install$missing (netperf is in the component non-free)" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null; then
	echo "deps: this is not Debian; install them with this system's package manager" >&2
	exit 1
fi
# shellcheck source=/dev/null
. /etc/os-release

work=$(mktemp -d)
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export DEBIAN_FRONTEND=noninteractive

echo "deps: refreshing the package lists"
apt-get -q update
install=
for package in $missing; do
	if [ "$package" = netperf ] && [ -z "$(apt-cache madison netperf)" ]; then
		echo "deps: fetching netperf from the component non-free, the machine's package sources stay as they are"
		fetch_nonfree netperf "$work"
		package=$(echo "$work"/netperf_*.deb)
	fi
	install="$install $package"
done
echo "deps: installing$missing"
keep_services_down
# shellcheck disable=SC2086 # one word for each package
apt-get -q -y --no-install-recommends -o APT::Sandbox::User=root install $install

# Servers of benchmarks do not start at boot.
for service in netperf iperf3 redis-server nginx; do
	case $missing in *"$service"*) ;; *) continue ;; esac
	service "$service" stop >/dev/null 2>&1 || true
	update-rc.d "$service" disable >/dev/null 2>&1 || true
done
echo "deps: done"

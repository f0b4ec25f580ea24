#!/bin/sh
# Publishes bench results. build/publish-results.sh DIR writes the tables of the run in DIR between the result markers of
# README.md, and those of the other suites, in DIR-SUITE, into docs/measured/SUITE.md. A suite without results is unchanged.
set -eu
cd "$(dirname "$0")/.."

# tables DIR prints the tables of a run.
tables() {
	text=$(bin/beeline-lab report "$1" --markdown)
	[ -n "$text" ] || { echo "publish-results: $1 has no tables" >&2; exit 1; }
	printf '%s\n' "$text"
}

if [ -e "$1/results.json" ]; then
	network=$(tables "$1")
	readme=$(TABLES=$network awk '
		/<!-- results:end -->/ { inside = 0 }
		!inside { print }
		/<!-- results:begin -->/ { inside = 1; found++; print ENVIRON["TABLES"] }
		END { exit found == 1 && !inside ? 0 : 1 }
	' README.md) || { echo 'publish-results: README.md has no pair of result markers' >&2; exit 1; }
	printf '%s\n' "$readme" >README.md
	echo "$1: README.md"
fi
mkdir -p docs/measured
for suite in services nodeport policy; do
	[ -e "$1-$suite/results.json" ] || continue
	text=$(tables "$1-$suite")
	cat >"docs/measured/$suite.md" <<END
# The $suite suite

Written by \`make publish\` from the results of the command below. [How this is measured](../measurement.md).

$text
END
	echo "$1-$suite: docs/measured/$suite.md"
done

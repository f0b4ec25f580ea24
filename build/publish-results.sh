#!/bin/sh
# Publishes bench results. build/publish-results.sh DIR writes the summary of the run in DIR between the result markers
# of README.md and all its tables into docs/measured/network.md. The run of another suite, in DIR-SUITE, goes into
# docs/measured/SUITE.md. A suite without results is unchanged.
set -eu
cd "$(dirname "$0")/.."

# tables DIR OPTION prints tables of a run.
tables() {
	text=$(bin/beeline-lab report "$1" "$2")
	[ -n "$text" ] || { echo "publish-results: $1 has no tables" >&2; exit 1; }
	printf '%s\n' "$text"
}

# page SUITE DIR writes the page of a suite.
page() {
	text=$(tables "$2" --markdown)
	cat >"docs/measured/$1.md" <<END
# The $1 suite

Written by \`make publish\` from the results of the command below. [How this is measured](../measurement.md).

$text
END
	echo "$2: docs/measured/$1.md"
}

mkdir -p docs/measured
if [ -e "$1/results.json" ]; then
	summary=$(tables "$1" --summary)
	readme=$(TABLES=$summary awk '
		/<!-- results:end -->/ { inside = 0 }
		!inside { print }
		/<!-- results:begin -->/ { inside = 1; found++; print ENVIRON["TABLES"] }
		END { exit found == 1 && !inside ? 0 : 1 }
	' README.md) || { echo 'publish-results: README.md has no pair of result markers' >&2; exit 1; }
	printf '%s\n' "$readme" >README.md
	echo "$1: README.md"
	page network "$1"
fi
for suite in services nodeport policy; do
	[ ! -e "$1-$suite/results.json" ] || page "$suite" "$1-$suite"
done

#!/bin/sh
# Publishes what benches found. build/publish-results.sh DIR puts the table of the bench of networks in DIR between the result
# markers of README.md, and those of the other suites, in DIR-SUITE, into docs/measured/SUITE.md. Suites that have not run stay as they are.
set -eu
cd "$(dirname "$0")/.."

# table DIR gives the table of a run.
table() {
	found=$(bin/beeline report "$1" --markdown)
	[ -n "$found" ] || { echo "publish-results: $1 gave no table" >&2; exit 1; }
	printf '%s\n' "$found"
}

if [ -e "$1/results.json" ]; then
	networks=$(table "$1")
	readme=$(TABLE=$networks awk '
		/<!-- results:end -->/ { inside = 0 }
		!inside { print }
		/<!-- results:begin -->/ { inside = 1; found++; print ENVIRON["TABLE"] }
		END { exit found == 1 && !inside ? 0 : 1 }
	' README.md) || { echo 'publish-results: README.md has no pair of result markers' >&2; exit 1; }
	printf '%s\n' "$readme" >README.md
	echo "$1: README.md"
fi
mkdir -p docs/measured
for suite in services nodeport policy; do
	[ -e "$1-$suite/results.json" ] || continue
	suite_table=$(table "$1-$suite")
	cat >"docs/measured/$suite.md" <<END
# The suite $suite

Made by \`make publish\` from the results of the run whose command is below. [How this is measured](../measurement.md).

$suite_table
END
	echo "$1-$suite: docs/measured/$suite.md"
done

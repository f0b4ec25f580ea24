#!/bin/bash
# Runs test commands one after the other and sums them up: build/gotestsum.sh PART COMMAND...
# Each COMMAND is one argument and prints `go test -json` events. gotestsum prints a line per package and the output of failed tests.
# The script writes bin/tests/PART.{json,xml,txt}: events, JUnit and a short summary. Its last line is "N passed, N failed, N skipped".
# It fails if a test or a command failed, or if no test passed. It prints a line every 50 s, so that CI can tell a long test from a hung one.
set -euo pipefail

if [ $# -lt 2 ]; then
	echo 'usage: build/gotestsum.sh PART COMMAND...' >&2
	exit 2
fi
cd "$(dirname "$0")/.."
results=${TEST_RESULTS:-bin/tests}/$1
shift
mkdir -p "$(dirname "$results")"
rm -f "$results".*

gotestsum() { go tool -modfile=build/tools/go.mod gotestsum "$@"; }

# The newest event that names a test says what runs. The shell's children end with it: a sleep would hold the output open.
heartbeat() {
	trap 'kill "$!"; exit' TERM
	while sleep "${HEARTBEAT_SECONDS:-50}" & wait "$!"; do
		running=$(tail -n 200 "$results.json" 2>/dev/null | jq -rRn '[inputs | fromjson? | select(.Test)][-1] | select(.) | .Package + " " + .Test' || true)
		echo "... $((SECONDS / 60)) min, running: ${running:-no test yet}"
	done
}
heartbeat &
trap 'kill $!' EXIT
trap 'exit 130' INT TERM

# Runs every command, also after a failure. The commands' own messages bypass gotestsum, which would repeat them all in its summary.
# shellcheck disable=SC2317 # called through bash -c
run_all() {
	failed=0
	for command; do
		echo "\$ $command" >&3
		code=0
		$command 2>&3 || code=$?
		[ "$code" = 0 ] || { echo "exit code $code: $command" >>"$results.txt"; failed=1; }
	done
	return "$failed"
}
export -f run_all
export results
code=0
gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg --format-icons=text --ignore-non-json-output-lines \
	--jsonfile="$results.json" --junitfile="$results.xml" --junitfile-hide-empty-pkg --hide-summary=failed,skipped,output \
	--post-run-command="sh -c 'env | grep ^TESTS_ >$results.counts'" \
	--raw-command -- bash -c 'run_all "$@"' bash "$@" 3>&2 || code=$?

# shellcheck source=/dev/null
. "$results.counts"
rm "$results.counts"
passed=$(grep '"Action":"pass"' "$results.json" | grep -c '"Test":"' || true)
{
	# Failed and skipped tests with the first lines that each printed itself, and build errors.
	gotestsum --format=none --raw-command -- cat "$results.json" |
		awk '/^DONE/ { exit } /^===/ { lines = 0; errors = /Errors$/ } /^=== .*: / || errors || /_test\.go:[0-9]+: / && lines++ < 4 { print substr($0, 1, 400) }'
	gotestsum tool slowest --threshold=5s --jsonfile="$results.json" | awk 'NR <= 20 { print "slow: " $0 }'
	echo "$passed passed, $TESTS_FAILED failed, $TESTS_SKIPPED skipped"
} >>"$results.txt"
cat "$results.txt"
if [ "$TESTS_FAILED" != 0 ] || [ "$passed" = 0 ]; then code=1; fi
exit "$code"

#!/bin/sh
# Runs a command that may be silent for minutes, as a compiler with empty caches is, and prints a line for each of them: build/patiently.sh COMMAND [ARGUMENT...]
set -eu

# Ends with the shell, and its sleep with it: that would hold the output open.
count_minutes() {
	trap 'kill "$!"; exit' TERM
	minutes=0
	while sleep 60 & wait "$!"; do
		minutes=$((minutes + 1))
		echo "...   $* for $minutes min"
	done
}

count_minutes "$@" &
ticker=$!
trap 'kill $ticker' EXIT
trap 'exit 130' INT TERM
"$@"

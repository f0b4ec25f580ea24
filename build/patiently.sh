#!/bin/sh
# Runs a command and prints a line every minute, so that CI does not take a silent compiler for a hang: build/patiently.sh COMMAND [ARGUMENT...]
set -eu

# The sleep ends with the shell: it would hold the output open.
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

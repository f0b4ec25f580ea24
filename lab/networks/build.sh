#!/bin/sh -eu
# Builds a program from its Go module where the cache lacks it: build.sh NAME MODULE VERSION PACKAGE [REPLACED=BY@VERSION].
# Prints nothing. The program is $(dirname of the cache)/NAME-VERSION.
name=$1 module=$2 version=$3 package=$4 replace=${5-}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/beeline-lab
program=$cache/$name-$version
[ ! -x "$program" ] || exit 0
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
go mod init build >/dev/null 2>&1
[ -z "$replace" ] || go mod edit -replace "$replace"
go get "$module@$version" >get.log 2>&1 || { tail -n 5 get.log >&2; exit 1; }
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$program.new" "$package"
mv "$program.new" "$program"

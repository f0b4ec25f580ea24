#!/bin/sh
# Puts the table of a bench run between the result markers of README.md: build/readme-results.sh DIR
set -eu
cd "$(dirname "$0")/.."
table=$(bin/beeline report "$1" --markdown)
[ -n "$table" ] || { echo "readme-results: $1 gave no table" >&2; exit 1; }
fresh=$(mktemp README.XXXXXX)
trap 'rm -f "$fresh"' EXIT
TABLE=$table awk '
	/<!-- results:end -->/ { inside = 0 }
	!inside { print }
	/<!-- results:begin -->/ { inside = 1; found++; print ENVIRON["TABLE"] }
	END { exit found == 1 && !inside ? 0 : 1 }
' README.md >"$fresh" || { echo 'readme-results: README.md has no pair of result markers' >&2; exit 1; }
cat "$fresh" >README.md

#!/bin/sh
# tools/source-id.sh: prints a number of twelve digits for the sources, committed or not. docs/ is not one of them.
set -eu
cd "$(dirname "$0")/.."
index=$(mktemp)
trap 'rm -f "$index"' EXIT
cp "$(git rev-parse --git-dir)/index" "$index"
GIT_INDEX_FILE=$index git add -A -- . ':!docs' >/dev/null 2>&1
GIT_INDEX_FILE=$index git rm -rq --cached --ignore-unmatch docs >/dev/null
GIT_INDEX_FILE=$index git write-tree | cut -c1-12

#!/bin/bash
# tools/lint.sh [all | FILE…]: runs clang-tidy on sources that differ from the branch main, on all, or on the given ones.
# Uses build/lint/compile_commands.json, which does not contain generated and third-party code.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
  base=$(git merge-base HEAD main 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)
  files=$( (git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard) |
    grep -E '\.cpp$' | sort -u || true)
elif [ "$1" = all ]; then
  files=$(git ls-files '*.cpp')
else
  files=$(printf '%s\n' "$@")
fi
if [ -z "$files" ]; then
  echo "no source differs from main; to check all sources, run make lint FILES=all"
  exit 0
fi
cmake --preset lint >/dev/null
# g++ options that clang rejects.
sed -i 's/ -fschedule-insns -fsched-pressure//; s/ --param ggc-min-heapsize=[0-9]*//' build/lint/compile_commands.json
# Skip files that are not in this build, such as fuzz targets and, without Arrow, its readers.
files=$(printf '%s\n' "$files" | while read -r file; do
  grep -qF "/$file\"" build/lint/compile_commands.json && printf '%s\n' "$file"
done || true)
# Ignore warnings about unknown g++ flags, and counts of suppressed warnings in system headers.
printf '%s\n' "$files" | xargs -r -n 2 -P "${JOBS:-$(nproc)}" \
  clang-tidy -p build/lint --quiet --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings generated' >&2)

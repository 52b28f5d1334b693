#!/bin/bash
# tools/lint.sh [all | FILE…]: clang-tidy over the sources that differ from the branch main, over all of them, or
# over those named. Reads build/lint/compile_commands.json; generated and third-party code is not in it.
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
  echo "nothing differs from main: make lint FILES=all looks at everything"
  exit 0
fi
cmake --preset lint >/dev/null
# Switches of g++ that clang refuses.
sed -i 's/ -fschedule-insns -fsched-pressure//' build/lint/compile_commands.json
# What this build leaves out, such as fuzz targets and, without Arrow, its readers, cannot be read.
files=$(printf '%s\n' "$files" | while read -r file; do
  grep -qF "/$file\"" build/lint/compile_commands.json && printf '%s\n' "$file"
done || true)
# g++'s flags that clang does not know are no finding, and neither are counts of what was kept quiet in system headers.
printf '%s\n' "$files" | xargs -r -n 2 -P "${JOBS:-$(nproc)}" \
  clang-tidy -p build/lint --quiet --extra-arg=-Wno-unknown-warning-option 2> >(grep -v 'warnings generated' >&2)

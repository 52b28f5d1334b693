#!/bin/sh
# tools/format.sh [--check]: runs clang-format on all C++ and CUDA sources in git. --check changes nothing; it reports
# differences and sources that compile only with a precompiled header, and checks the wording (tools/language.sh).
set -eu
cd "$(dirname "$0")/.."
mode=-i
[ "${1:-}" = --check ] && mode="--dry-run -Werror"
git ls-files -z --cached --others --exclude-standard '*.cpp' '*.h' '*.cu' '*.cuh' |
  xargs -0 -r -n 32 -P "$(nproc)" clang-format --style=file $mode

[ "${1:-}" = --check ] || exit 0
tools/language.sh >/dev/null
# GCC builds include fmt through a precompiled header; clang builds (the fuzzers) have none.
git grep -lE '\bfmt::' -- 'src/*.cpp' | {
  found=0
  while read -r source; do
    header=${source%.cpp}.h
    [ -f "$header" ] || header=
    # shellcheck disable=SC2086
    grep -qE '#include (<fmt/|"base/(error|log)\.h")' "$source" $header && continue
    echo "$source: uses fmt without including <fmt/…>, base/error.h or base/log.h" >&2
    found=1
  done
  exit "$found"
}

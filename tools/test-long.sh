#!/bin/bash
# tools/test-long.sh [JOBS]: everything that is too slow for `make test`. The tests under the address, undefined-
# behaviour and thread sanitizers, the tests labelled long, and each fuzzer for STRATA_FUZZ_SECONDS (180).
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
seconds=${STRATA_FUZZ_SECONDS:-180}
failed=()

part() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}
sanitized() {
  cmake --preset "$1" && cmake --build "build/$1" --parallel "$jobs" && ctest --preset "$1" --parallel "$jobs"
}
long_tests() {
  cmake --preset release && cmake --build build/release --parallel "$jobs" && ctest --preset long
}
fuzzers() {
  cmake --preset fuzz && cmake --build build/fuzz --parallel "$jobs" --target fuzzers || return 1
  local target name found=0
  for target in build/fuzz/bin/fuzz_*; do
    [ -x "$target" ] || continue
    found=1
    name=$(basename "$target")
    name=${name#fuzz_}
    mkdir -p "build/fuzz/corpus/$name"
    local seeds=()
    [ -d "tests/fuzz/seeds/$name" ] && seeds=("tests/fuzz/seeds/$name")
    echo "-- $name for $seconds s"
    "$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -artifact_prefix="build/fuzz/$name-" \
      -print_final_stats=1 "build/fuzz/corpus/$name" "${seeds[@]}" || return 1
  done
  [ "$found" = 1 ] || echo "no fuzz targets"
}

part "address and undefined-behaviour sanitizers" sanitized asan
part "thread sanitizer" sanitized tsan
part "long tests" long_tests
part "fuzzing" fuzzers

if [ "${#failed[@]}" -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "everything passed"

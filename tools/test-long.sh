#!/bin/bash
# tools/test-long.sh [JOBS]: runs everything that is too slow for `make test`: the tests under the address, undefined-
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

part "address and undefined-behaviour sanitizers" sanitized asan
part "thread sanitizer" sanitized tsan
part "long tests" long_tests
part "fuzzing" tools/fuzz.sh "$seconds" "$jobs"

if [ "${#failed[@]}" -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "everything passed"

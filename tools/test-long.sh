#!/bin/bash
# tools/test-long.sh [JOBS [PART…]]: runs everything that is too slow for `make test`, in parts (all of them by default):
#
#   lint   clang-tidy over all sources
#   asan   all tests under the address and undefined-behaviour sanitizers
#   tsan   all tests under the thread sanitizer
#   long   the tests labelled long
#   fuzz   each fuzzer for STRATA_FUZZ_SECONDS (180)
#   hip    GPU kernels compile for AMD (tools/hip.sh)
#
# It can be stopped at any time. The same command continues with what has not passed yet on these sources; what passed is
# listed in build/test-long. A part that is complete gets its date and commit in the table of docs/progress.md.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
shift || true
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(lint asan tsan long fuzz hip)

# The table of passes is not one of the sources.
tree=$(tools/source-id.sh)
state=build/test-long/$tree
mkdir -p "$state"
failed=()

# step PART NAME COMMAND…: runs the command unless it has passed on these sources.
step() {
  local list=$state/$1 name=$2
  shift 2
  grep -qxF -- "$name" "$list" 2>/dev/null && return 0
  if "$@"; then
    printf '%s\n' "$name" >>"$list"
  else
    return 1
  fi
}

# Runs the tests of a preset that have not passed, each by itself.
tests() {
  local part=$1 preset=$2 build=$3 name all
  cmake --preset "${build##*/}" >/dev/null || return 1
  cmake --build "$build" --parallel "$jobs" --target all $([ "$part" = long ] && echo long_tests benches) || return 1
  # Instrumented frames are several times as large: deep JSON needs more than the usual 8 MB.
  ulimit -s unlimited 2>/dev/null || true
  all=$(ctest --preset "$preset" -N | sed -n 's/^ *Test *#[0-9]*: //p')
  [ -n "$all" ] || { echo "no test in $preset" >&2; return 1; }
  export -f step one_test
  export state
  printf '%s\n' "$all" | xargs -P "$jobs" -I{} bash -c 'one_test "$@"' - "$part" "$preset" {}
}
one_test() {
  local pattern
  pattern=$(printf '%s' "$3" | sed 's/[.+]/\\&/g')
  step "$1" "$3" ctest --preset "$2" --output-on-failure -R "^$pattern\$" >"$state/$1-$3.log" 2>&1 && return 0
  echo "failed: $1 $3 ($state/$1-$3.log)"
  return 1
}

part() {
  local name=$1
  echo "== $name ($tree)"
  case $name in
    lint) JOBS=$jobs tools/lint.py all ;;  # it remembers by itself which files have passed
    asan | tsan) tests "$name" "$name" "build/$name" ;;
    long) tests long long build/release ;;
    fuzz) step fuzz all tools/fuzz.sh "${STRATA_FUZZ_SECONDS:-180}" "$jobs" ;;
    hip) step hip all tools/hip.sh "$jobs" ;;
    *)
      echo "tools/test-long.sh: found part $name, expected lint, asan, tsan, long, fuzz or hip" >&2
      exit 2
      ;;
  esac
}

# Enters date and commit of a part that has passed.
enter() {
  local commit
  commit=$(git rev-parse --short=8 HEAD)
  git diff --quiet HEAD -- . ':!docs' || commit="$commit with changes"
  sed -i "s/^| $1 | .*/| $1 | $(date +%F) | $commit |/" docs/progress.md
}

for name in "${parts[@]}"; do
  if part "$name"; then
    enter "$name"
  else
    failed+=("$name")
  fi
done
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "everything passed: ${parts[*]}"

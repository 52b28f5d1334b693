#!/bin/bash
# tools/fuzz.sh [SECONDS [JOBS]]: builds the fuzzers of all file readers (clang, with sanitizers) and runs each for
# SECONDS (60). The corpus is kept in build/fuzz/corpus for the next run; a failing input is saved as
# build/fuzz/NAME-crash-…. STRATA_FUZZ_SEED makes a run repeatable (0: a new seed for each run).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
jobs=${2:-$(nproc)}
cmake --preset fuzz
cmake --build build/fuzz --parallel "$jobs" --target fuzzers
found=0
for target in build/fuzz/bin/fuzz_*; do
  [ -x "$target" ] || continue
  found=1
  name=$(basename "$target")
  name=${name#fuzz_}
  mkdir -p "build/fuzz/corpus/$name"
  seeds=()
  [ -d "tests/fuzz/seeds/$name" ] && seeds=("tests/fuzz/seeds/$name")
  echo "-- $name for $seconds s"
  log=build/fuzz/$name.log
  "$target" -seed="${STRATA_FUZZ_SEED:-0}" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=60 \
    -artifact_prefix="build/fuzz/$name-" -print_final_stats=1 "build/fuzz/corpus/$name" "${seeds[@]}" \
    >"$log" 2>&1 || { tail -n 60 "$log"; exit 1; }
  grep -E 'stat::(number_of_executed_units|new_units_added)' "$log"
done
[ "$found" = 1 ] || { echo "no fuzzer was built" >&2; exit 1; }

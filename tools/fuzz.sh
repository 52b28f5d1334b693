#!/bin/bash
# tools/fuzz.sh [SECONDS [JOBS [TARGET]]]: builds the fuzzers of all file readers (clang, with sanitizers) and runs each for
# SECONDS (60). TARGET is fuzzers (all of them) or quick_fuzzers (those that compile in minutes). The
# corpus is kept in build/fuzz/corpus for the next run; a failing input is saved as build/fuzz/NAME-crash-….
# STRATA_FUZZ_SEED makes a run repeatable (0: a new seed for each run).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
jobs=${2:-$(nproc)}
fuzzers=${3:-fuzzers}
cmake --preset fuzz
cmake --build build/fuzz --parallel "$jobs" --target "$fuzzers"
while read -r name; do
  target=build/fuzz/bin/fuzz_$name
  mkdir -p "build/fuzz/corpus/$name"
  seeds=()
  [ -d "tests/fuzz/seeds/$name" ] && seeds=("tests/fuzz/seeds/$name")
  echo "-- $name for $seconds s"
  log=build/fuzz/$name.log
  "$target" -seed="${STRATA_FUZZ_SEED:-0}" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=60 \
    -artifact_prefix="build/fuzz/$name-" -print_final_stats=1 "build/fuzz/corpus/$name" "${seeds[@]}" \
    >"$log" 2>&1 </dev/null || { tail -n 60 "$log"; exit 1; }
  grep -E 'stat::(number_of_executed_units|new_units_added)' "$log"
done <"build/fuzz/$fuzzers.txt"

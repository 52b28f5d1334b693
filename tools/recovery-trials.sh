#!/bin/bash
# tools/recovery-trials.sh [JOBS [KIND…]]: shows that runs recover without a person. 100 faults, each without and with the
# rules of recovery, 100 clean runs, and 20 with the learning rate doubled (tests/train/recovery_trials_test.cpp): about an
# hour of one core. KIND is a kind of run, from 0 to 5 (all of them by default).
#
# It can be stopped at any time. The same command continues with the runs that are missing for these sources; their results
# are in build/recovery-trials. When all are there, it writes the table of docs/recovery.md.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
shift || true
kinds=("$@")
[ "${#kinds[@]}" -gt 0 ] || kinds=(0 1 2 3 4 5)
tests=train_recovery_trials_tests
STRATA_TRIALS=$PWD/build/recovery-trials/$(tools/source-id.sh)
export STRATA_TRIALS
mkdir -p "$STRATA_TRIALS"

cmake --preset release >/dev/null
cmake --build build/release --parallel "$jobs" --target "$tests"

# A log for each kind; failures are in the table too.
one_kind() {
  local log=$STRATA_TRIALS/kind-$2.log
  "$1" --gtest_brief=1 --gtest_filter="Kinds/*/$2" >"$log" 2>&1 && return 0
  echo "failed: kind $2 ($log)"
  return 1
}
export -f one_kind
failed=0
printf '%s\n' "${kinds[@]}" | xargs -P "$jobs" -I{} bash -c 'one_kind "$@"' - "build/release/bin/$tests" {} || failed=1

commit=$(git rev-parse --short=8 HEAD)
git diff --quiet HEAD -- . ':!docs' || commit="$commit with changes"
if [ "${#kinds[@]}" -eq 6 ]; then
  STRATA_WRITE_TRIALS="$(date +%F), $commit" "build/release/bin/$tests" --gtest_brief=1 --gtest_filter='RecoveryTable.*'
fi
exit "$failed"

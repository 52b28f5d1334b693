#!/bin/bash
# tools/test.sh PRESET JOBS [OPTIONS OF CTEST…]: runs the tests of a build. If some fail, lists each by name at the end,
# with the command that runs only this test.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
preset=$1
jobs=$2
shift 2
ctest --preset "$preset" --parallel "$jobs" "$@"
status=$?
[ "$status" = 0 ] && exit 0

# The log has each process's command and output; GoogleTest writes "[  FAILED  ] Suite.Name" once or twice for a test.
awk '
  /^Command: / { match($0, /"[^"]*"/); program = substr($0, RSTART + 1, RLENGTH - 2) }
  /^\[  FAILED  \] [^ ,]+\.[^ ,]+/ {
    name = $4
    sub(/,$/, "", name)
    if (!seen[program, name]++) failed[++count] = "  " program " --gtest_filter=" name
  }
  END {
    if (!count) exit
    print "\nFailed (each line runs one of them):"
    for (i = 1; i <= count; ++i) print failed[i]
  }' "build/$preset/Testing/Temporary/LastTest.log" >&2
exit "$status"

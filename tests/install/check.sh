#!/bin/bash
# tests/install/check.sh BUILD COMPILER: installs BUILD under BUILD/installed, and builds and runs examples/embed against
# that, found by find_package and by pkg-config.
set -euo pipefail
build=$1 compiler=$2
here=$(cd "$(dirname "$0")" && pwd)
example=$here/../../examples/embed
prefix=$build/installed work=$build/consumer
rm -rf "$prefix" "$work"
cmake --install "$build" --prefix "$prefix" >/dev/null
mkdir -p "$work"
fail() { echo "$*" >&2; exit 1; }

# Only the six public headers are installed, and only their functions can be linked.
headers=$(cd "$prefix/include" && find . -name '*.h' | LC_ALL=C sort | tr '\n' ' ')
[ "$headers" = "./strata/config.h ./strata/data.h ./strata/error.h ./strata/model.h ./strata/strata.h ./strata/train.h " ] ||
  fail "installed headers: $headers"
library=$(find "$prefix" -name libstrata.so)
internal=$(nm -DC --defined-only "$library" | grep -E '^[0-9a-f]+ . strata::(config|training|program|graph|kernels|device|ops|data|models|comm)::' | head -3 || true)
[ -z "$internal" ] || fail "internal functions are visible: $internal"

cmake -S "$example" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror ${STRATA_CONSUMER_FLAGS:-}" >/dev/null
cmake --build "$work/cmake"

pc=$(find "$prefix" -name strata.pc)
# The file names the prefix of the configuration; the copy was installed elsewhere.
flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --define-variable=prefix="$prefix" --cflags --libs strata)
# shellcheck disable=SC2086
"$compiler" -std=c++20 "$example/main.cpp" -o "$work/by-pkg-config" ${STRATA_CONSUMER_FLAGS:-} $flags

LD_LIBRARY_PATH=$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
for i in $(seq 400); do
  echo "The number $i comes after $((i - 1)), and before $((i + 1)). The sum of the two is $((2 * i))."
done >"$work/text.txt"
for program in "$work/cmake/embed" "$work/by-pkg-config"; do
  "$program" "$work/text.txt" "$work/out-$(basename "$program")" 30 >"$work/printed" 2>"$work/errors" ||
    fail "$program: $(cat "$work/errors")"
  [ ! -s "$work/errors" ] || fail "$program printed on standard error: $(cat "$work/errors")"
  grep -q '^step 30: loss' "$work/printed" || fail "$program: $(cat "$work/printed")"
done
# Both ways give the same model, and the program reads it.
cmp "$work/out-embed/model/model.safetensors" "$work/out-by-pkg-config/model/model.safetensors"
"$prefix/bin/strata" checkpoint verify "$work/out-embed/model" >/dev/null
# A mistake is an Error with the program's exit code.
code=0
"$work/cmake/embed" "$work/absent.txt" "$work/out-absent" 30 >/dev/null 2>"$work/errors" || code=$?
{ [ "$code" = 2 ] && grep -q absent.txt "$work/errors"; } || fail "a missing text: exit code $code, $(cat "$work/errors")"

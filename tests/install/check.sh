#!/bin/bash
# tests/install/check.sh BUILD COMPILER: installs BUILD under BUILD/installed, then builds and runs main.cpp against it,
# once with find_package and once with pkg-config.
set -euo pipefail
build=$1 compiler=$2
here=$(cd "$(dirname "$0")" && pwd)
prefix=$build/installed
rm -rf "$prefix" "$build/consumer"
cmake --install "$build" --prefix "$prefix" >/dev/null

cmake -S "$here" -B "$build/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="${STRATA_CONSUMER_FLAGS:-}" >/dev/null
cmake --build "$build/consumer"
"$build/consumer/consumer"

pc=$(find "$prefix" -name strata.pc)
# strata.pc contains the configured prefix; this copy was installed elsewhere.
flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --define-variable=prefix="$prefix" --cflags --libs strata)
# shellcheck disable=SC2086
"$compiler" "$here/main.cpp" -o "$build/consumer/by-pkg-config" ${STRATA_CONSUMER_FLAGS:-} $flags
"$build/consumer/by-pkg-config"

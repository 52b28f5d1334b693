#!/bin/sh
# Estimates the speed of bf16 on a processor with AVX2 but without bf16 instructions: builds this commit with a
# 256-bit fp32 FMA in place of each 512-bit VDPBF16PS, and runs a benchmark of that build. Its results are wrong,
# but its cost is about that of Zen 4, which executes such an instruction in two halves; docs/benchmarks.md lists
# the differences. Only for timing.
#
#     bench/bf16_cost/run.sh strata bench step --set model.preset=gpt2-124m --set 'precision.compute="bf16"'
#     bench/bf16_cost/run.sh gemm_bench --benchmark_filter=pairs
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
copy="$root/build/bf16-cost"
if [ $# -eq 0 ]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit 2
fi
commit=$(git -C "$root" rev-parse HEAD)
if [ ! -f "$copy/COMMIT" ] || [ "$(cat "$copy/COMMIT")" != "$commit" ]; then
  rm -rf "$copy/src" "$copy/bench"
  mkdir -p "$copy"
  git -C "$root" archive "$commit" | tar -x -C "$copy"
  # Not "git apply", which does nothing here because the copy is in an ignored folder of the repository.
  patch -s -d "$copy" -p1 < "$here/fma_for_vdpbf16ps.patch"
  (cd "$copy" && cmake --preset release > cmake.log)
  printf '%s\n' "$commit" > "$copy/COMMIT"
fi
program=$1
shift
cmake --build "$copy/build/release" --target "$program" > "$copy/build.log" || { tail -n 20 "$copy/build.log"; exit 1; }
# A separate cache, so that other builds do not use the machine's rates that this build measures.
XDG_CACHE_HOME="$copy/cache" exec "$copy/build/release/bin/$program" "$@"

#!/bin/sh
# Times bf16 on a processor with AVX2 and without bf16 instructions: builds this commit with an fp32 FMA of 256
# bits where VDPBF16PS of 512 would stand, and runs a benchmark of that build. Its numbers are wrong, its costs
# are about those of Zen 4, which carries such an instruction out in two halves: docs/benchmarks.md says what
# differs. For nothing but timing.
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
  # Not "git apply": inside the repository it would take the copy for an ignored folder, and do nothing.
  patch -s -d "$copy" -p1 < "$here/fma_for_vdpbf16ps.patch"
  (cd "$copy" && cmake --preset release > cmake.log)
  printf '%s\n' "$commit" > "$copy/COMMIT"
fi
program=$1
shift
cmake --build "$copy/build/release" --target "$program" > "$copy/build.log" || { tail -n 20 "$copy/build.log"; exit 1; }
# What this build measures of the machine is kept apart from what others trust.
XDG_CACHE_HOME="$copy/cache" exec "$copy/build/release/bin/$program" "$@"

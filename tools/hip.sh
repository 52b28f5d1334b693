#!/bin/bash
# tools/hip.sh [JOBS]: compiles the device code of src/kernels/gpu for AMD's gfx90a by hipcc, and prints which modules
# compile and which are left out. Exits with 1 if a module that is not left out does not compile. Nothing is run.
#
# Left out are modules of tensor cores: those with a call of a function of intrinsics.cuh whose PTX is mma, ldmatrix or
# cp.async, or with hopper.cuh. hip.cuh has the rest of intrinsics.cuh for HIP.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}
command -v hipcc >/dev/null || { echo "hipcc is missing: run tools/packages.sh long" >&2; exit 1; }
out=build/hip
mkdir -p "$out"

# The functions of intrinsics.cuh for tensor cores.
gpu=src/kernels/gpu
functions=$(awk '/__forceinline__/ { name = $0; sub(/\(.*/, "", name); sub(/.* /, "", name) }
                 /mma\.|ldmatrix\.|cp\.async\./ && /asm/ { print name }' $gpu/intrinsics.cuh | sort -u)
[ -n "$functions" ] || { echo "tools/hip.sh: found no tensor-core function in $gpu/intrinsics.cuh" >&2; exit 1; }
calls="\\b($(tr '\n' '|' <<<"$functions" | sed 's/|$//'))[(<]"

# Why a module is left out; nothing if it is not.
reason() {
  local files
  files=$(g++ -MM -x c++ -I src "$gpu/$1.cu" | tr -d '\\' | tr ' ' '\n' | grep "^$gpu/" | grep -v /intrinsics.cuh)
  if grep -q /hopper.cuh <<<"$files"; then
    echo "instructions of sm_90a"
  else
    { xargs grep -hoE "$calls" <<<"$files" || true; } | tr -d '(<' | sort -u | paste -sd' '
  fi
}

compile() {
  if hipcc -x hip --offload-arch=gfx90a --cuda-device-only -std=c++17 -Wall -Werror -Wno-pass-failed \
    -Wno-unused-command-line-argument -I src -c -o "$2/$1.o" "$3/$1.cu" >"$2/$1.log" 2>&1; then
    echo "compiles  $1"
  else
    echo "FAILS     $1 ($2/$1.log)"
    grep -m 3 'error:' "$2/$1.log" || tail -n 3 "$2/$1.log"
    return 1
  fi
}
export -f compile
export HIP_PLATFORM=amd

modules=() left_out=()
for file in "$gpu"/*.cu; do
  module=$(basename "$file" .cu)
  why=$(reason "$module")
  if [ -n "$why" ]; then left_out+=("left out  $module: $why"); else modules+=("$module"); fi
done
[ "${#modules[@]}" -gt 0 ] || { echo "tools/hip.sh: found no module to compile in $gpu" >&2; exit 1; }
rc=0
printf '%s\n' "${modules[@]}" | xargs -P "$jobs" -I{} bash -c 'compile "$@"' - {} "$out" "$gpu" || rc=1
printf '%s\n' "${left_out[@]}"
[ "$rc" = 0 ] || { echo "tools/hip.sh: not all modules compile for gfx90a" >&2; exit 1; }
echo "${#modules[@]} modules compile for gfx90a, ${#left_out[@]} are left out for tensor cores"

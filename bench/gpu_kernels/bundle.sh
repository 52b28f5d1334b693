#!/bin/sh
# bundle.sh FOLDER: compiles the kernels for sm_90a and the benchmark, and copies them to FOLDER with the files that run.sh needs.
set -e
here=$(cd "$(dirname "$0")" && pwd)
src=$here/../../src
mkdir -p "$1"
to=$(cd "$1" && pwd)
ls "$src"/kernels/gpu/*.cu "$here"/checks.cu | xargs -P 2 -I {} sh -c \
  'nvcc -std=c++17 -I '"$src"' -I '"$here"' -gencode=arch=compute_90a,code=sm_90a -cubin -o "$1/$(basename "$2" .cu).cubin" "$2"' sh "$to" {}
g++ -std=c++20 -O2 -I "$src" -I "$here" -static-libstdc++ -static-libgcc -o "$to/kernels_bench" "$here"/*.cpp "$src"/kernels/gpu/*.cpp -ldl
strip "$to/kernels_bench"
cp "$here/run.sh" "$here/peers.py" "$here/report.py" "$to"
du -sh "$to"

#!/bin/bash
# tools/gpu-bundle.sh: packs build/dist/strata-gpu-VERSION-linux-ARCHITECTURE.tar.xz: the newest archive of `make dist`, results
# of all GPU kernels and the processor's losses of small models, recorded here without a GPU (tests/gpu/record.cpp), bench/gpu.sh, and a
# peer in PyTorch. On a machine with an NVIDIA driver, glibc 2.36 or later, tar and xz (or Python), and nothing else:
#
#   tar -xf strata-gpu-VERSION-linux-x86_64.tar.xz && strata-gpu-VERSION-linux-x86_64/gpu.sh
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/release
fail() {
  echo "tools/gpu-bundle.sh: $*" >&2
  exit 1
}

version=$($build/bin/strata --version)
target=linux-$(uname -m)
archive=build/dist/strata-$version-$target.tar.zst
[ -e "$archive" ] || fail "$archive is missing: run make gpu-bundle"
[ -x $build/bin/gpu_record ] || fail "$build/bin/gpu_record is missing: nvcc was not found when $build was configured"
name=strata-gpu-$version-$target
stage=build/dist/$name
rm -rf "$stage"
mkdir -p "$stage/strata"
zstd -dcq "$archive" | tar --extract --directory "$stage/strata" --strip-components 1
[ -e "$stage/strata/lib/strata/strata_cuda.so" ] || fail "$archive has no strata_cuda.so: run make gpu-bundle where nvcc is"

STRATA_TWIN='' STRATA_GPU_KERNELS=$build/src/kernels/gpu LD_LIBRARY_PATH=$build/tests/gpu/twin $build/bin/gpu_record "$stage/expected.zst"
install -m 755 bench/gpu.sh "$stage/gpu.sh"
install -m 644 bench/peers/pytorch_peer.py "$stage/pytorch_peer.py"

packed=build/dist/$name.tar.xz
tar --create --directory build/dist --sort=name --format=gnu --owner=0 --group=0 --numeric-owner \
  --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" --mode=u=rwX,go=rX "$name" | xz -q -9e -T0 >"$packed"
(cd build/dist && sha256sum "$name.tar.xz" >"$name.tar.xz.sha256")
rm -rf "$stage"
bytes=$(stat -c %s "$packed")
printf '%s: %d.%d MB\n' "$packed" $((bytes / 1000000)) $((bytes / 100000 % 10))
[ "$bytes" -le 30000000 ] || fail "the bundle exceeds 30 MB"

#!/bin/sh
# tools/cuda.sh [FOLDER]: puts NVIDIA's compiler of GPU code, from its wheels on PyPI, into FOLDER (build/cuda), where
# cmake finds it, and prints the path of nvcc. Does not need Python. PIP_INDEX_URL sets another index than PyPI.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/cuda}
case "$folder" in /*) ;; *) folder=$PWD/$folder ;; esac
release=13.0
machine=$(uname -m)
# Package, version, SHA-256.
case "$machine" in
  x86_64) wheels="
nvidia-cuda-nvcc 13.0.88 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-nvvm 13.0.88 c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-crt 13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548" ;;
  aarch64) wheels="
nvidia-cuda-nvcc 13.0.88 c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f
nvidia-nvvm 13.0.88 c4376a291d72d22a315d9d2f69bdae8f8cd83a627f75bad395cee49a0fe65dc1
nvidia-cuda-crt 13.0.88 ee2ea2a97073e02ee62bb27841f437332be2c248e3eac013df07997ada39c003
nvidia-cuda-runtime 13.0.96 ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55" ;;
  *)
    echo "NVIDIA's wheels are for x86_64 and aarch64, not $machine: install the CUDA toolkit 12.8 or later." >&2
    exit 1
    ;;
esac

root=$folder/$release
if [ -x "$root/bin/nvcc" ]; then
  echo "$root/bin/nvcc"
  exit 0
fi
if command -v curl >/dev/null 2>&1; then
  get() { curl -fsSL --retry 3 "$1"; }
elif command -v wget >/dev/null 2>&1; then
  get() { wget -qO- --tries=3 "$1"; }
else
  echo "curl and wget are missing: install one of them to fetch nvcc." >&2
  exit 1
fi
index=${PIP_INDEX_URL:-https://pypi.org/simple}
mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "Fetching nvcc $release (about 100 MB)" >&2
echo "$wheels" | while read -r package version sum; do
  [ -n "$package" ] || continue
  wheel=$(echo "$package" | tr - _)-$version
  link=$(get "${index%/}/$package/" | grep -o "href=\"[^\"]*$wheel-[^\"]*_$machine\.whl[^\"]*\"" | head -n 1 |
    sed 's/^href="//; s/"$//; s/&amp;/\&/g') || true
  if [ -z "$link" ]; then
    echo "$index has no wheel of $wheel for $machine." >&2
    exit 1
  fi
  case "$link" in
    http*) ;;
    *) link=${index%/}/$package/$link ;;
  esac
  get "${link%%#*}" >"$work/$wheel.whl"
  echo "$sum  $work/$wheel.whl" | sha256sum -c - >/dev/null || {
    echo "The SHA-256 of $wheel is not the pinned one; try again." >&2
    exit 1
  }
  # A wheel is a zip file; all of them fill one folder.
  (cd "$work" && cmake -E tar xf "$wheel.whl" && rm "$wheel.whl")
done
made=$work/nvidia/cu13
[ -e "$made/bin/nvcc" ] || {
  echo "The wheels have no nvcc where they had it in CUDA $release." >&2
  exit 1
}
chmod +x "$made/bin/"* "$made/nvvm/bin/"*
mkdir -p "$made/licenses"
for text in "$work"/*.dist-info/licenses/*; do
  package=${text#"$work"/}
  [ -e "$text" ] && cp "$text" "$made/licenses/${package%%-*}-${text##*/}"
done
rm -rf "${root:?}"
mv "$made" "$root"
echo "$root/bin/nvcc"

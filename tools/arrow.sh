#!/bin/sh
# tools/arrow.sh [FOLDER]: extracts Apache Arrow's C++ library from the pyarrow wheel into FOLDER (build/arrow) and prints
# the value for cmake's STRATA_ARROW_ROOT. Does not need Python. PIP_INDEX_URL sets another index than PyPI.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/arrow}
version=26.0.1
wheel_tag="cp312-cp312-manylinux_2_28_$(uname -m)"

case "$folder" in /*) ;; *) folder=$PWD/$folder ;; esac
if [ -e "$folder/$version/pyarrow/include/parquet/arrow/reader.h" ]; then
  echo "$folder/$version/pyarrow"
  exit 0
fi
if command -v curl >/dev/null 2>&1; then
  get() { curl -fsSL --retry 3 "$1"; }
elif command -v wget >/dev/null 2>&1; then
  get() { wget -qO- --tries=3 "$1"; }
else
  echo "curl and wget are missing: install one of them to fetch Apache Arrow." >&2
  exit 1
fi

index=${PIP_INDEX_URL:-https://pypi.org/simple}
link=$(get "${index%/}/pyarrow/" | grep -o "href=\"[^\"]*pyarrow-$version-$wheel_tag\.whl[^\"]*\"" | head -n 1 |
  sed 's/^href="//; s/"$//; s/&amp;/\&/g') || true
if [ -z "$link" ]; then
  echo "$index has no wheel pyarrow-$version-$wheel_tag for this machine." >&2
  exit 1
fi
sum=$(printf '%s' "$link" | sed -n 's/.*#sha256=\([0-9a-f]*\).*/\1/p')
case "$link" in
  http*) ;;
  *) link=${index%/}/pyarrow/$link ;;
esac

mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "Fetching pyarrow $version (about 50 MB)" >&2
get "${link%%#*}" >"$work/pyarrow.whl"
if [ -n "$sum" ]; then
  echo "$sum  $work/pyarrow.whl" | sha256sum -c - >/dev/null || {
    echo "The wheel's SHA-256 differs from that in the index; try again." >&2
    exit 1
  }
fi
# A wheel is a zip file. Keep only the headers and the C++ libraries.
(cd "$work" && cmake -E tar xf pyarrow.whl)
mkdir -p "$work/kept/pyarrow"
mv "$work/pyarrow/include" "$work/kept/pyarrow/"
for library in libarrow libparquet libarrow_s3; do
  for file in "$work/pyarrow/$library".so.*; do
    [ -e "$file" ] && mv "$file" "$work/kept/pyarrow/"
  done
done
cp "$work"/pyarrow-*.dist-info/licenses/* "$work/kept/pyarrow/" 2>/dev/null || true
rm -rf "${folder:?}/$version"
mv "$work/kept" "$folder/$version"
echo "$folder/$version/pyarrow"

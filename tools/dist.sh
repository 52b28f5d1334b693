#!/bin/bash
# tools/dist.sh: packs build/dist/strata-VERSION-linux-ARCHITECTURE.tar.zst and its .sha256 from build/release: the stripped
# program and its modules for MPI and GPUs, the shared libraries that they need except those of the C library, manual pages, completions,
# docs, examples, and the licences of all parts. Two runs on the same build write the same bytes; dates are those of
# SOURCE_DATE_EPOCH, by default of the last commit. libmpi is not packed: ranks of several processes use the host's MPI.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/release
fail() {
  echo "tools/dist.sh: $*" >&2
  exit 1
}

version=$($build/bin/strata --version)
name=strata-$version-linux-$(uname -m)
stage=build/dist/$name
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
rm -rf "$stage"
mkdir -p "$stage/lib" "$stage/share/doc/strata/licences"

# The install rules set the program's run path to ../lib.
cmake --install $build/src/cli --prefix "$stage" --strip >/dev/null
for part in comm:strata_mpi device/cuda:strata_cuda; do
  [ ! -e "$build/lib/strata/${part#*:}.so" ] || cmake --install "$build/src/${part%:*}" --prefix "$stage" --strip >/dev/null
done
# Without /proc the dynamic loader does not know the program's folder, so a script names it.
mkdir "$stage/libexec"
mv "$stage/bin/strata" "$stage/libexec/strata"
cat >"$stage/bin/strata" <<'SCRIPT'
#!/bin/sh
# Runs libexec/strata, which finds its libraries in lib. Without /proc the dynamic loader needs LD_ORIGIN_PATH for that.
self=$0
[ ! -L "$self" ] || self=$(readlink -f "$self")
folder=$(cd "${self%/*}/../libexec" && pwd) || exit
[ -e /proc/self/exe ] || export LD_ORIGIN_PATH="$folder"
exec "$folder/strata" "$@"
SCRIPT
chmod 755 "$stage/bin/strata"
git ls-files -z LICENSE NOTICE README.md docs examples | tar --create --null --files-from=- | tar --extract --directory "$stage"

# package_of FILE: the Debian package that installed it. dpkg knows a file by its path in / or in /usr.
package_of() {
  local path
  for path in "$1" "$(readlink -f "$1")" "/usr$1" "${1#/usr}"; do
    dpkg-query -S "$path" 2>/dev/null | head -n 1 | cut -d: -f1 | grep . && return
  done
  fail "$1 belongs to no Debian package, so its licence is unknown; configure with cmake -U STRATA_ARROW_ROOT"
}

# Used as headers only, so no shared library represents them.
packages=(libcli11-dev nlohmann-json3-dev)
while read -r soname path; do
  package=$(package_of "$path")
  [ "$package" != libc6 ] || continue
  packages+=("$package")
  install -m 644 "$path" "$stage/lib/$soname"
  # A library with its own run path would ignore the program's.
  ! objdump -p "$path" | grep -q RUNPATH || fail "$path has a RUNPATH"
done < <(ldd $build/bin/strata | awk '$2 == "=>" { print $1, $3 }' | sort)
for module in "$stage"/lib/strata/*.so; do
  [ -e "$module" ] || continue
  for soname in $(objdump -p "$module" | awk '$1 == "NEEDED" { print $2 }'); do
    [[ "$soname" == libmpi* || "$soname" == libc.so* || "$soname" == libm.so* || "$soname" == ld-linux* || -e "$stage/lib/$soname" ]] ||
      [ "$(package_of "$(ldd "$build/lib/strata/${module##*/}" | awk -v n="$soname" '$1 == n { print $3 }')")" = libc6 ] ||
      fail "${module##*/} needs $soname, which the program does not"
  done
done

licences=$stage/share/doc/strata/licences
for package in $(printf '%s\n' "${packages[@]}" | sort -u); do
  [ -e "/usr/share/doc/$package/copyright" ] || fail "/usr/share/doc/$package/copyright is missing"
  install -m 644 "$(readlink -f "/usr/share/doc/$package/copyright")" "$licences/$package"
done
# Debian's files refer to these for the full text.
grep -oh '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$licences"/* | sort -u | while read -r licence; do
  [ ! -e "$licence" ] || install -D -m 644 "$(readlink -f "$licence")" "$licences/common-licenses/${licence##*/}"
done

archive=build/dist/$name.tar.zst
tar --create --directory build/dist --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$epoch" \
  --mode=u=rwX,go=rX "$name" | zstd -q -19 -T0 -f -o "$archive"
(cd build/dist && sha256sum "$name.tar.zst" >"$name.tar.zst.sha256")
rm -rf "$stage"
bytes=$(stat -c %s "$archive")
printf '%s: %d.%d MB\n' "$archive" $((bytes / 1000000)) $((bytes / 100000 % 10))
[ "$bytes" -lt 40000000 ] || fail "the archive exceeds 40 MB"

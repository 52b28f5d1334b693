#!/bin/bash
# tools/bare-root.sh [FOLDER]: runs the README's commands on a bare Debian 12. Makes a minimal system root with
# debootstrap, puts a fresh clone of HEAD into it, installs git and make, and runs `make test` and `make demo` there, each
# twice. Needs root and debootstrap; uses the mirror of this system's apt sources. BARE_ROOT_TARGETS="test demo" selects
# the targets. FOLDER (default: a temporary one) is removed afterwards unless BARE_ROOT_KEEP is set.
set -euo pipefail
source_tree=$(cd "$(dirname "$0")/.." && pwd)
targets=${BARE_ROOT_TARGETS:-test demo}
[ "$(id -u)" = 0 ] || { echo "tools/bare-root.sh needs root: it makes and enters a system root" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; exit 2; }

# The first Debian archive of apt's sources, in whatever format they are written.
mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
  awk '$2 == "Debian" && $3 == "main" && $1 !~ /security/ { print $1; exit }')
[ -n "$mirror" ] || { echo "apt has no Debian archive configured: no source for packages" >&2; exit 2; }

root=${1:-$(mktemp -d --tmpdir strata-bare-root.XXXXXX)}
mounted=()
leave() {
  local i
  for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do umount -l "${mounted[i]}"; done
  if [ -n "${BARE_ROOT_KEEP:-}" ]; then
    echo "the root was kept in $root"
  elif ! awk -v r="$root/" 'index($2, r) == 1 { found = 1 } END { exit found }' /proc/mounts; then
    echo "something is still mounted under $root: not removed" >&2
  else
    rm -rf --one-file-system "$root"
  fi
}
trap leave EXIT

seconds=$SECONDS
part() {
  printf '%-40s %4d s\n' "$1" $((SECONDS - seconds)) >>"$root/timings"
  seconds=$SECONDS
}
inside() {
  chroot "$root" /usr/bin/env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    STRATA_DEMO_SECONDS="${STRATA_DEMO_SECONDS:-}" /bin/sh -c "$1"
}

mkdir -p "$root"
debootstrap --variant=minbase bookworm "$root" "$mirror"
part "debootstrap"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# Security and point updates from this system's apt sources, as on an installed system.
apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
  awk '{ print "deb", $1, $2, $3 }' | sort -u >"$root/etc/apt/sources.list"
# The root uses the same apt settings for dates and proxies.
apt-config dump --format '%f "%v";%n' | grep -E '^Acquire::(Check-|http|https)' \
  >"$root/etc/apt/apt.conf.d/90outer" || true
for folder in proc dev sys; do
  mount --rbind "/$folder" "$root/$folder"
  mount --make-rslave "$root/$folder"
  mounted+=("$root/$folder")
done

inside 'apt-get update -q && apt-get install -q -y --no-install-recommends git make ca-certificates' >"$root/log" 2>&1 ||
  { tail -n 30 "$root/log"; exit 1; }
part "installing git and make"
git clone -q --no-hardlinks "$source_tree" "$root/strata"
for round in first second; do
  for target in $targets; do
    echo "== make $target, $round time"
    inside "cd /strata && make $target"
    part "make $target, $round time"
  done
done
inside 'cd /strata && git status --porcelain' >"$root/status"
[ ! -s "$root/status" ] || { echo "the commands left untracked or changed files:"; cat "$root/status"; exit 1; }
echo "== timings"
cat "$root/timings"

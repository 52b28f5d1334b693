#!/bin/bash
# tools/dist-check.sh [SUITE…]: runs the archive of `make dist` in bare system roots: Debian 12 and 13 and Ubuntu 24.04, or
# the named suites (bookworm, trixie, noble). In each, first with nothing mounted, so without /proc and /sys, then with
# both: doctor, train, resume, generate, two ranks; then in a copy with Open MPI, mpirun. Needs root, and debootstrap and
# package mirrors for new roots; they are kept in build/dist-check. Ubuntu is skipped if its mirror (STRATA_UBUNTU_MIRROR)
# is not reachable, mpirun if Open MPI cannot be installed. Exits 1 if any check fails.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "tools/dist-check.sh needs root: it makes and enters system roots" >&2; exit 2; }
# Mounts are made in a separate namespace, which ends with this process, however it exits.
if [ -z "${STRATA_DIST_CHECK:-}" ]; then
  STRATA_DIST_CHECK=1 exec unshare --mount --propagation private "$0" "$@"
fi
cd "$(dirname "$0")/.."
# shellcheck disable=SC2012
archive=$(ls -t build/dist/strata-*.tar.zst 2>/dev/null | head -n 1 || true)
[ -n "$archive" ] || { echo "build/dist has no archive: run make dist" >&2; exit 2; }
roots=build/dist-check
mkdir -p "$roots"

# new_root SUITE FOLDER
new_root() {
  local mirror script=
  command -v debootstrap >/dev/null || tools/packages.sh all
  if [ "$1" = noble ]; then
    # https, because Debian has no package of Ubuntu's keys with which debootstrap could check signatures.
    mirror=${STRATA_UBUNTU_MIRROR:-https://archive.ubuntu.com/ubuntu}
  else
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
      awk '$2 == "Debian" && $3 == "main" && $1 !~ /security/ { print $1; exit }')
    [ -n "$mirror" ] || mirror=https://deb.debian.org/debian
  fi
  # All Ubuntu suites share one script; Debian's debootstrap does not list the newest.
  [ -e "/usr/share/debootstrap/scripts/$1" ] || script=gutsy
  rm -rf "$2.part"
  # shellcheck disable=SC2086
  debootstrap --variant=minbase "$1" "$2.part" "$mirror" $script >"$roots/log" 2>&1 || { tail -n 5 "$roots/log"; return 1; }
  [ "$1" != noble ] || echo "deb $mirror noble main universe" >"$2.part/etc/apt/sources.list"
  mv "$2.part" "$2"
}

inside() {
  chroot "$root" /usr/bin/env -i HOME=/check TERM=dumb PATH=/check/strata/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none \
    /bin/sh -c "cd /check && $1"
}

# new_mpi_root FOLDER: the present root with Open MPI.
new_mpi_root() {
  local from=$root
  root=$1.part
  rm -rf "$root"
  cp -a --one-file-system "$from" "$root"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # The root uses the same apt settings for dates and proxies, and trusts the same mirrors.
  mkdir -p "$root/etc/ssl/certs"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" 2>/dev/null || true
  apt-config dump --format '%f "%v";%n' | grep -E '^Acquire::(Check-|http|https)' >"$root/etc/apt/apt.conf.d/90outer" || true
  mount_all
  inside "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends openmpi-bin" \
    >"$roots/log" 2>&1 || { tail -n 5 "$roots/log"; return 1; }
  umount -l "$root/proc" "$root/sys" "$root/dev"
  mv "$root" "$1"
}

failed=0
# check NAME COMMAND [PATTERN]: COMMAND must succeed, and its output must match PATTERN.
check() {
  local begin=$SECONDS output
  if output=$(inside "$2" 2>&1) && grep -qE -- "${3:-.}" <<<"$output"; then
    printf '%-10s %-44s ok %4d s\n' "$suite" "$1" $((SECONDS - begin))
  else
    printf '%-10s %-44s FAILED: %s\n%s\n' "$suite" "$1" "$2" "$output"
    failed=1
  fi
}

# Puts the archive and a text into the root.
unpack() {
  rm -rf "$root/check"
  mkdir -p "$root/check/strata"
  zstd -dcq "$archive" | tar --extract --directory "$root/check/strata" --strip-components 1
  cat docs/*.md >"$root/check/corpus.txt"
}

mount_all() {
  local folder
  for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
}

train="strata train corpus.txt --set training.global_batch_size=4 --set training.sequence_length=64
  --set model.override.num_hidden_layers=2 --set model.override.vocab_size=400 --set eval.sample_tokens=8"
train=${train//$'\n'/}

# check_program WHERE RUN DOCTOR
check_program() {
  check "$1: version" "strata --version --json" '"libraries"'
  check "$1: $3" "strata $3" "matmul peak +[0-9]"
  check "$1: train" "$train --set training.steps=4 --set run.folder=$2" "the model is in"
  check "$1: resume" "$train --set training.steps=8 --set run.folder=$2 --accept-changes" "resumed after step 4"
  check "$1: generate" "strata generate --model $2 --prompt 'The ' --max-tokens 8"
  check "$1: train --ranks 2" "$train --set training.steps=4 --set run.folder=$2-ranks --ranks 2" "the model is in"
}

# One warning for each kind of file that cannot be read.
check_warnings() {
  check "$1" "$2 >out 2>&1; grep -oE '\[/(proc|sys)/[^]]*\] cannot be read' out | sort | uniq -c" \
    "^ +1 .*/proc/meminfo"
  check "$1, each once" "grep -oE '\[/(proc|sys)/[^]]*\] cannot be read' out | sort | uniq -d | wc -l" "^0$"
}

check_suite() {
  suite=$1
  root=$roots/$suite
  if [ ! -d "$root" ] && ! new_root "$suite" "$root"; then
    echo "$suite: no root can be made"
    [ "$suite" = noble ] || failed=1
    return
  fi
  unpack
  check_program "without /proc" bare doctor
  check_warnings "warnings of doctor" "strata doctor --quick"
  check_warnings "warnings of train" "$train --set training.steps=1 --set run.folder=warned"
  mount_all
  # Finds the measurements made without /proc.
  check_program "with /proc" full "doctor --quick"
  check "no warnings of doctor" "! strata doctor --quick | grep 'cannot be read' && echo none" none

  if [ ! -d "$root-mpi" ] && ! new_mpi_root "$root-mpi"; then
    echo "$suite: Open MPI cannot be installed, so mpirun is not checked"
    return
  fi
  root=$roots/$suite-mpi
  unpack
  mount_all
  check "mpirun -n 2" "mpirun --oversubscribe --bind-to none -n 2 $train --set training.steps=4 --set run.folder=mpi" \
    "the model is in"
  check "losses of --ranks 2" "$train --set training.steps=4 --set run.folder=ranks --ranks 2 >/dev/null 2>&1
    for run in mpi ranks; do grep -o '\"loss\": *[0-9.]*' \$run/metrics.jsonl >\$run.loss; done
    [ -s mpi.loss ] && cmp mpi.loss ranks.loss && echo same" same
}

[ $# -gt 0 ] || set -- bookworm trixie noble
for one in "$@"; do check_suite "$one"; done
exit "$failed"

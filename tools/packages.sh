#!/bin/sh
# tools/packages.sh build|all|long: installs missing packages of debian-packages.txt; `all` includes those marked `dev`,
# `long` also those marked `long`. Does nothing, and does not need root, if all are installed.
set -eu
cd "$(dirname "$0")/.."

case "${1:-build}" in
  build) wanted=$(sed 's/#.*//' debian-packages.txt | awk 'NF == 1 { print $1 }') ;;
  all) wanted=$(sed 's/#.*//' debian-packages.txt | awk 'NF >= 1 && $2 != "long" { print $1 }') ;;
  long) wanted=$(sed 's/#.*//' debian-packages.txt | awk 'NF >= 1 { print $1 }') ;;
  *) echo "usage: tools/packages.sh build|all|long" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "This is not a Debian system. Install the equivalents of these packages:" $wanted >&2
  exit 0
fi

missing=
for package in $wanted; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null 2>&1; then
  as_root="sudo env"
else
  echo "These packages are missing:$missing" >&2
  echo "Installing them needs root, and sudo is missing. As root, run:" >&2
  echo "  apt-get update && apt-get install --no-install-recommends$missing" >&2
  exit 1
fi

echo "Installing:$missing"
export_settings="DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Package lists may be old or missing, so update them first. Quiet unless it fails.
if ! $as_root $export_settings apt-get update -q >"$log" 2>&1 ||
   ! $as_root $export_settings apt-get install -q -y --no-install-recommends $missing >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "Installing the packages failed; see the output of apt-get above. Is the package mirror reachable?" >&2
  exit 1
fi

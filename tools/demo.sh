#!/bin/bash
# What `make demo` runs once the program is built.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x build/release/bin/strata ]; then
  echo "build/release/bin/strata is not there yet: run make build" >&2
  exit 1
fi

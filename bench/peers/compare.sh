#!/bin/bash
# bench/peers/compare.sh [OPTIONS of compare.py]: compares Strata with its peers, interleaved, on this machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -x build/release/bin/strata ] || { echo "build the program first: make build" >&2; exit 2; }
[ -x build/peers/venv/bin/python ] || { echo "make the peers' environment first: bench/peers/setup.sh" >&2; exit 2; }
exec build/peers/venv/bin/python bench/peers/compare.py "$@"

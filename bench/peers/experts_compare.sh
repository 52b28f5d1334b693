#!/bin/bash
# bench/peers/experts_compare.sh [OPTIONS of experts_compare.py]: compares Strata with transformers on models with experts.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -x build/release/bin/strata ] || { echo "build the program first: make build" >&2; exit 2; }
[ -x build/peers/venv/bin/python ] || { echo "make the peers' environment first: bench/peers/setup.sh experts" >&2; exit 2; }
exec build/peers/venv/bin/python bench/peers/experts_compare.py "$@"

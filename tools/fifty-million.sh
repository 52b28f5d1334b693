#!/bin/bash
# tools/fifty-million.sh [NAME…]: trains the given models of examples/50m (default: all) on the demo's text, a few minutes
# each on two cores, and draws their held-out losses in docs/fifty-million.svg. Interrupted runs resume; finished runs are
# only drawn. `rm -r demo/50m` starts over.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/demo-corpus.sh
names=("$@")
[ $# -gt 0 ] || for file in examples/50m/*.toml; do
  if grep -q '^\[model\]' "$file"; then names+=("$(basename "$file" .toml)"); fi
done
for name in "${names[@]}"; do build/release/bin/strata train "examples/50m/$name.toml"; done
python3 tools/fifty_million_curves.py demo/50m docs/fifty-million.svg

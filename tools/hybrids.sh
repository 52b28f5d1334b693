#!/bin/bash
# tools/hybrids.sh [PRESET…]: trains examples/hybrids.toml with gdn-30m, mamba2-30m and llama3-29m, on the same data in the
# same order, and draws their held-out losses by step and by FLOPs in docs/hybrids.svg. Each takes some minutes on two
# cores. Interrupted runs resume. `rm -r demo/hybrids` starts over. To try the script:
#   SETS="training.tokens=40000" FOLDER=/tmp/hybrids tools/hybrids.sh gdn-30m
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${FOLDER:-demo/hybrids}
strata=${STRATA:-build/release/bin/strata}
read -r -a sets <<<"${SETS:-}"
presets=("$@")
[ ${#presets[@]} -gt 0 ] || presets=(gdn-30m mamba2-30m llama3-29m)

tools/demo-corpus.sh
for preset in "${presets[@]}"; do
  arguments=(--set "model.preset=\"$preset\"" --set "run.folder=\"$folder/$preset\"")
  for set in "${sets[@]}"; do arguments+=(--set "$set"); done
  [ -e "$folder/$preset/final" ] || "$strata" train examples/hybrids.toml "${arguments[@]}"
done
drawing=docs/hybrids.svg
[ "$folder" = demo/hybrids ] || drawing=$folder/hybrids.svg
python3 tools/fifty_million_curves.py "$folder" "$drawing"

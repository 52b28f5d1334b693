#!/bin/bash
# tools/sparse.sh: trains a dense latent-attention model (examples/sparse.toml), adds an indexer that chooses an eighth of the
# keys, warms it up, and trains on with sparse attention; draws docs/sparse-attention.svg. Some minutes on two cores; runs that were
# interrupted resume. `rm -r demo/sparse` starts over. To try the script:
#   SETS="training.tokens=40000" FOLDER=/tmp/sparse tools/sparse.sh
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${FOLDER:-demo/sparse}
strata=${STRATA:-build/release/bin/strata}
read -r -a more <<<"${SETS:-}"

tools/demo-corpus.sh
mkdir -p "$folder"
# Later stages have the model and the tokenizer of a folder.
sed '/^\[model/,/^\[data/{/^\[data/!d}' examples/sparse.toml >"$folder/stage.toml"
# stage NAME CONFIG SETTING…: a run, unless it is finished.
stage() {
  local name=$1 config=$2 arguments=()
  shift 2
  for set in "$@" "${more[@]}"; do arguments+=(--set "$set"); done
  [ -e "$folder/$name/final" ] ||
    "$strata" train "$config" --set "run.folder=\"$folder/$name\"" "${arguments[@]}"
}

stage dense examples/sparse.toml
[ -e "$folder/with-indexer" ] ||
  "$strata" checkpoint add-indexer "$folder/dense" "$folder/with-indexer" --heads 4 --size 64 --top-k 64 --dtype fp32
tokenizer="tokenizer.path=\"$folder/dense/final/tokenizer.json\""
stage warmup "$folder/stage.toml" "model.from=\"$folder/with-indexer\"" 'model.indexer="warmup"' "$tokenizer" \
  training.tokens=120_000 schedule.warmup_steps=5
# Without a warm-up, for comparison: the indexer is random at first.
for name in sparse cold; do
  from=$folder/warmup/final
  [ "$name" = sparse ] || from=$folder/with-indexer
  stage "$name" "$folder/stage.toml" "model.from=\"$from\"" "$tokenizer" \
    training.tokens=80_000 optimizer.lr=2e-4 schedule.warmup_steps=5
done
for name in with-indexer warmup/final sparse/final cold/final; do
  "$strata" eval --model "$folder/$name" --text demo/corpus/held-out.txt --sequence-length 512 --json \
    >"$folder/$(echo "$name" | tr / -).json"
done
drawing=docs/sparse-attention.svg
[ "$folder" = demo/sparse ] || drawing=$folder/sparse-attention.svg
python3 tools/sparse_curves.py "$folder" "$drawing"

#!/bin/bash
# tools/precision-gap.sh [MODEL/RUN…]: how much held-out loss the recipes in 8 and 4 bits cost against bf16.
#
# Trains examples/precision-gap.toml with each recipe, on the same data in the same order, and writes
# docs/precision-gap.csv and docs/precision-gap.svg from the runs that are finished. One call is one part of at most
# MINUTES (20): call it again until it says that all runs are finished. Interrupted runs resume. `rm -r demo/precision-gap`
# starts over; `tools/precision-gap.sh list` names the runs. To try the script:
#   MINUTES=2 SETS="training.tokens=40000" FOLDER=/tmp/gap tools/precision-gap.sh dense/bf16-1 dense/block-1
#
# Runs are MODEL/RECIPE-SEED. The noise is that of bf16: three seeds, and the first of them with other micro-batches,
# which changes only the order of sums. Recipes that this version refuses are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${MINUTES:-20}
folder=${FOLDER:-demo/precision-gap}
strata=${STRATA:-build/release/bin/strata}
read -r -a sets <<<"${SETS:-}"
[ "$minutes" -ge 1 ] || { echo "MINUTES: found $minutes, expected at least 1" >&2; exit 2; }

# Controls leave out what their publishers say that a recipe needs: nvfp4_plain the transform and stochastic rounding,
# tensor_hopper the promotion of sums (about ten times as slow).
recipes=(tensor delayed row row_hp_wgrad mxfp8 nvfp4 fp16 bf16_weights bf16_weights_nearest nvfp4_plain tensor_hopper)
names=()
for model in dense experts; do
  names+=("$model"/{bf16-1,bf16-2,bf16-3,bf16_micro-1,block-1,block-2,block-3})
  for recipe in "${recipes[@]}"; do names+=("$model/$recipe-1"); done
done
[ "${1:-}" != list ] || { printf '%s\n' "${names[@]}"; exit 0; }
[ $# -eq 0 ] || names=("$@")

# The settings of a run, one a line.
settings() {
  local model=${1%/*} run=${1#*/}
  local recipe=${run%-*} seed=${run##*-}
  printf '%s\n' "run.seed=$seed" "run.folder=\"$folder/$1\""
  case $model in
    dense) ;;
    experts)  # about 5 million parameters, 2 of 8 experts a token
      printf '%s\n' 'model.preset="moe-30m-a10m"' model.override.{vocab_size=4096,hidden_size=192} \
        model.override.{num_hidden_layers=4,num_attention_heads=6,num_key_value_heads=2,head_dim=32} \
        model.override.{num_experts=8,num_experts_per_tok=2,moe_intermediate_size=192} ;;
    *) echo "$1: found the model $model, expected dense or experts" >&2; return 2 ;;
  esac
  case $recipe in
    bf16) ;;
    bf16_micro) echo training.micro_batch_size=4 ;;
    fp16) echo 'precision.compute="fp16"' ;;
    bf16_weights) echo 'precision.weights="bf16"' ;;
    bf16_weights_nearest) printf '%s\n' 'precision.weights="bf16"' 'precision.rounding="nearest"' ;;
    nvfp4_plain) printf '%s\n' 'precision.compute="fp4"' 'precision.hadamard=false' 'precision.gradient_rounding="nearest"' ;;
    tensor_hopper) printf '%s\n' 'precision.compute="fp8"' 'precision.recipe="tensor"' 'precision.accumulation="hopper"' ;;
    nvfp4) printf '%s\n' 'precision.compute="fp4"' 'precision.recipe="nvfp4"' ;;
    *) printf '%s\n' 'precision.compute="fp8"' "precision.recipe=\"$recipe\"" ;;
  esac
  [ ${#sets[@]} -eq 0 ] || printf '%s\n' "${sets[@]}"
}

tools/demo-corpus.sh
mkdir -p "$folder"
end=$((SECONDS + 60 * minutes))
waiting=0
for name in "${names[@]}"; do
  [ ! -e "$folder/$name/gap-finished" ] || continue
  mapfile -t keys < <(settings "$name")
  [ ${#keys[@]} -gt 0 ] || exit 2
  arguments=()
  for key in "${keys[@]}"; do arguments+=(--set "$key"); done
  if ! "$strata" config show examples/precision-gap.toml "${arguments[@]}" >"$folder/refused" 2>&1; then
    echo "$name: left out: $(head -n 1 "$folder/refused")"
    continue
  fi
  left=$((end - SECONDS))
  # Less is not worth a start.
  if [ "$left" -lt 30 ]; then waiting=$((waiting + 1)); continue; fi
  echo "$name: at most $left s"
  code=0
  "$strata" train examples/precision-gap.toml "${arguments[@]}" --set "run.max_time=\"$left s\"" || code=$?
  case $code in
    0) touch "$folder/$name/gap-finished" ;;
    75) waiting=$((waiting + 1)) ;;
    *) exit "$code" ;;
  esac
done
rm -f "$folder/refused"
echo
python3 tools/precision_gap.py "$folder" "${OUT:-docs/precision-gap}"
if [ "$waiting" -gt 0 ]; then
  echo "$waiting runs are not finished: call tools/precision-gap.sh again"
else
  echo "all runs are finished"
fi

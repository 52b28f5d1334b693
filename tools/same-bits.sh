#!/bin/sh
# tools/same-bits.sh BEFORE AFTER [FOLDER]: whether two builds of the program compute the same bits on this machine.
# Each trains 50 steps of five families in fp32 and bf16 with evaluations and a save; compared are losses, norms and
# evaluations of every step, every byte of the last checkpoint and of the model that is handed on, an evaluation of
# it and greedy text; then AFTER goes on from a copy of BEFORE's run at step 25 and must end as BEFORE did.
# Prints a line a comparison and ends in 1 where one differs. About three minutes on two cores.
set -eu
[ $# -ge 2 ] || { sed -n '2,6s/^# //p' "$0"; exit 2; }
before=$(realpath "$1") after=$(realpath "$2")
work=${3:-$(mktemp -d)}
mkdir -p "$work"
cd "$(dirname "$0")/.."
cat README.md docs/*.md >"$work/text.txt"
cd "$work"
failed=0

# NAME PRESET OVERRIDES…, these in alphabetical order: older programs resume no others
families="
llama3 llama3-5m
gpt2 gpt2-124m n_embd=96 n_head=4 n_layer=2
gemma3 gemma3-270m head_dim=24 hidden_size=96 intermediate_size=160 num_attention_heads=4 num_hidden_layers=3
bert bert-tiny
t5 t5-small d_ff=160 d_kv=24 d_model=96 num_decoder_layers=2 num_heads=4 num_layers=2
"

train() {  # PROGRAM FOLDER STEPS PRECISION PRESET OVERRIDES…
  program=$1 folder=$2 steps=$3 precision=$4 preset=$5
  shift 5
  for override in "$@"; do set -- "$@" --set "model.override.$override"; shift; done
  # The horizon of the schedule is that of the whole run, wherever the first part stops.
  "$program" train text.txt --set run.folder="\"$folder\"" --set model.preset="\"$preset\"" "$@" \
    --set precision.compute="\"$precision\"" --set model.override.vocab_size=2048 \
    --set tokenizer.train.vocab_size=2000 \
    --set training.sequence_length=64 --set training.global_batch_size=8 --set training.micro_batch_size=4 \
    --set training.steps="$steps" --set schedule.steps=50 --set 'eval.interval="25 steps"' --set eval.sample_tokens=16 \
    --set 'checkpoint.interval="25 steps"' --set optimizer.lr=1e-3 --accept-changes >"$folder.log" 2>&1 ||
    { echo "failed: $folder"; tail -n 3 "$folder.log"; return 1; }
}

numbers() {  # what of a step does not depend on the clock
  grep -o '"\(step\|tokens\|loss\|grad_norm\|param_norm\|lr\|eval/[a-z_/]*\)":[^,}]*' "$1/metrics.jsonl"
}

bytes() {  # of a folder's tensors, and of what describes them
  (cd "$1" && find . -type f \( -name '*.safetensors' -o -name 'config.json' -o -name 'tokenizer*.json' \) |
    LC_ALL=C sort | xargs sha256sum)
}

compare() {  # WHAT LEFT RIGHT: two texts
  if [ "$2" = "$3" ]; then echo "same: $1"; else echo "DIFFERENT: $1"; failed=1; fi
}

echo "$families" | while read -r name preset overrides; do
  [ -n "$name" ] || continue
  for precision in fp32 bf16; do
    run="$name-$precision"
    rm -rf before-"$run" after-"$run" moved-"$run"
    # shellcheck disable=SC2086
    train "$before" before-"$run" 25 $precision "$preset" $overrides || exit 1
    cp -r before-"$run" moved-"$run"
    # shellcheck disable=SC2086
    train "$before" before-"$run" 50 $precision "$preset" $overrides || exit 1
    # shellcheck disable=SC2086
    train "$after" after-"$run" 25 $precision "$preset" $overrides || exit 1
    # shellcheck disable=SC2086
    train "$after" after-"$run" 50 $precision "$preset" $overrides || exit 1
    # shellcheck disable=SC2086
    train "$after" moved-"$run" 50 $precision "$preset" $overrides || exit 1
    for other in after moved; do
      compare "$run, numbers of every step ($other)" "$(numbers before-"$run")" "$(numbers $other-"$run")"
      compare "$run, checkpoint ($other)" "$(bytes before-"$run"/checkpoints/step-00000050)" \
        "$(bytes $other-"$run"/checkpoints/step-00000050)"
      compare "$run, final model ($other)" "$(bytes before-"$run"/final)" "$(bytes $other-"$run"/final)"
    done
    # Older programs left out the last text's end.
    compare "$run, evaluation" \
      "$("$before" eval --model before-"$run"/final --text text.txt --sequence-length 64 --set tokenizer.add_eos=false --json 2>&1)" \
      "$("$after" eval --model before-"$run"/final --text text.txt --sequence-length 64 --set tokenizer.add_eos=false --json 2>&1)"
    [ "$name" = bert ] || compare "$run, greedy text" \
      "$("$before" generate --model before-"$run"/final --prompt 'The program' --temperature 0 --max-tokens 24 --json 2>&1)" \
      "$("$after" generate --model before-"$run"/final --prompt 'The program' --temperature 0 --max-tokens 24 --json 2>&1)"
  done
  [ $failed = 0 ] || exit 1
done

#!/bin/sh
# tools/same-bits.sh [--quick] BEFORE AFTER [FOLDER]: checks whether two builds of the program compute the same bits on
# this machine. Each trains small models with evaluations and saves: dense and expert families in fp32 and bf16, one with
# reference kernels, and six layouts of ranks. It compares losses, norms and evaluations of every step, every byte of the
# last checkpoint and of the final model, an evaluation of that model and greedy text. AFTER also resumes a copy of
# BEFORE's half-finished run and must end with the same bits. --quick: only the marked rows, and no resumed copy.
# Prints a line per comparison and exits with 1 if one differs. Takes two minutes on two cores, half a minute with --quick.
set -eu
quick=no
[ "${1:-}" != --quick ] || { quick=yes; shift; }
[ $# -ge 2 ] || { sed -n '2,8s/^# //p' "$0"; exit 2; }
before=$(realpath "$1") after=$(realpath "$2")
work=${3:-$(mktemp -d)}
mkdir -p "$work"
cd "$(dirname "$0")/.."
cat README.md docs/*.md >"$work/text.txt"
cd "$work"

# NAME PRECISIONS STEPS QUICK PRESET OVERRIDES… -- OPTIONS…
# Overrides must be in alphabetical order, because older programs do not resume others.
gemma="gemma3-270m head_dim=24 hidden_size=96 intermediate_size=160 num_attention_heads=4 num_hidden_layers=3"
qwen="qwen3-30b-a3b head_dim=16 hidden_size=64 intermediate_size=128 moe_intermediate_size=32 \
num_attention_heads=4 num_experts=8 num_experts_per_tok=2 num_hidden_layers=2 num_key_value_heads=2"
deepseek="deepseek-v3 first_k_dense_replace=1 hidden_size=64 intermediate_size=128 kv_lora_rank=16 moe_intermediate_size=32 \
n_group=2 n_routed_experts=8 n_shared_experts=1 num_attention_heads=4 num_experts_per_tok=2 num_hidden_layers=3 \
num_key_value_heads=4 num_nextn_predict_layers=1 q_lora_rank=24 qk_nope_head_dim=16 qk_rope_head_dim=8 topk_group=1 v_head_dim=16"
rows="
llama3 fp32,bf16 50 bf16 llama3-5m --
gpt2 fp32,bf16 50 - gpt2-124m n_embd=96 n_head=4 n_layer=2 --
gemma3 fp32,bf16 50 - $gemma --
bert fp32,bf16 50 - bert-tiny --
t5 fp32,bf16 50 - t5-small d_ff=160 d_kv=24 d_model=96 num_decoder_layers=2 num_heads=4 num_layers=2 --
qwen3-moe fp32,bf16 50 fp32 $qwen --
deepseek-v3 fp32,bf16 50 fp32 $deepseek --
reference fp32 4 fp32 $gemma -- debug.reference_kernels=true
zero3 fp32,bf16 20 - llama3-5m -- ranks=2 parallel.zero=3
tensor fp32 20 fp32 $gemma -- ranks=2 parallel.tensor=2
context fp32 20 - $qwen -- ranks=2 parallel.context=2
pipeline fp32 20 - $gemma -- ranks=2 parallel.pipeline=2 parallel.schedule=\"zb_h1\"
experts fp32,bf16 20 - $deepseek -- ranks=2 parallel.expert=2
four fp32 20 fp32 $qwen -- ranks=4 parallel.zero=3 parallel.tensor=2 parallel.expert=2
"

train() {  # PROGRAM FOLDER UNTIL STEPS PRECISION PRESET OVERRIDES… -- OPTIONS…
  program=$1 folder=$2 until=$3 steps=$4 precision=$5 preset=$6
  shift 6
  kind=model.override. left=$#
  while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case $word in
      --) kind= ;;
      ranks=*) set -- "$@" --ranks "${word#ranks=}" ;;
      *) set -- "$@" --set "$kind$word" ;;
    esac
  done
  # The schedule covers the whole run even if this part stops earlier.
  "$program" train text.txt --set run.folder="\"$folder\"" --set model.preset="\"$preset\"" "$@" \
    --set precision.compute="\"$precision\"" --set model.override.vocab_size=2048 \
    --set tokenizer.train.vocab_size=2000 \
    --set training.sequence_length=64 --set training.global_batch_size=8 --set training.micro_batch_size=2 \
    --set training.steps="$until" --set schedule.steps="$steps" --set eval.interval="\"$((steps / 2)) steps\"" \
    --set eval.sample_tokens=16 --set checkpoint.interval="\"$((steps / 2)) steps\"" --set optimizer.lr=1e-3 \
    --accept-changes >"$folder.log" 2>&1 ||
    { echo "failed: $folder"; tail -n 3 "$folder.log"; return 1; }
}

numbers() {  # the metrics of each step that do not depend on time
  grep -o '"\(step\|tokens\|loss\|grad_norm\|param_norm\|lr\|balance_loss\|router_z_loss\|mtp_loss\|eval/[a-z_/]*\)":[^,}]*' \
    "$1/metrics.jsonl"
}

bytes() {  # checksums of a folder's tensors, configuration and tokenizer
  (cd "$1" && find . -type f \( -name '*.safetensors' -o -name 'config.json' -o -name 'tokenizer*.json' \) |
    LC_ALL=C sort | xargs sha256sum)
}

compare() {  # WHAT TEXT TEXT
  if [ "$2" = "$3" ]; then echo "same: $1"; else echo "DIFFERENT: $1"; failed=1; fi
}

one_row() {  # NAME PRECISION STEPS PRESET OVERRIDES… -- OPTIONS…
  run="$1-$2" precision=$2 steps=$3
  family=$1
  shift 3
  rm -rf before-"$run" after-"$run" moved-"$run"
  others=after
  if [ $quick = no ]; then
    others="after moved"
    train "$before" before-"$run" $((steps / 2)) "$steps" "$precision" "$@" || return 1
    cp -r before-"$run" moved-"$run"
    train "$after" after-"$run" $((steps / 2)) "$steps" "$precision" "$@" || return 1
    train "$after" moved-"$run" "$steps" "$steps" "$precision" "$@" || return 1
  fi
  train "$before" before-"$run" "$steps" "$steps" "$precision" "$@" || return 1
  train "$after" after-"$run" "$steps" "$steps" "$precision" "$@" || return 1
  last=$(printf 'checkpoints/step-%08d' "$steps")
  for other in $others; do
    compare "$run, numbers of every step ($other)" "$(numbers before-"$run")" "$(numbers $other-"$run")"
    compare "$run, checkpoint ($other)" "$(bytes before-"$run"/"$last")" "$(bytes $other-"$run"/"$last")"
    compare "$run, final model ($other)" "$(bytes before-"$run"/final)" "$(bytes $other-"$run"/final)"
  done
  # Results only: warnings may be reworded. Older programs omit the end-of-text token of the last text.
  compare "$run, evaluation" \
    "$("$before" eval --model before-"$run"/final --text text.txt --sequence-length 64 --set tokenizer.add_eos=false --json 2>/dev/null || echo fails before)" \
    "$("$after" eval --model before-"$run"/final --text text.txt --sequence-length 64 --set tokenizer.add_eos=false --json 2>/dev/null || echo fails after)"
  [ "$family" = bert ] || compare "$run, greedy text" \
    "$("$before" generate --model before-"$run"/final --prompt 'The program' --temperature 0 --max-tokens 24 --json 2>/dev/null || echo fails before)" \
    "$("$after" generate --model before-"$run"/final --prompt 'The program' --temperature 0 --max-tokens 24 --json 2>/dev/null || echo fails after)"
}

failed=0
while read -r name precisions steps marked words; do
  [ -n "$name" ] || continue
  for precision in $(echo "$precisions" | tr , ' '); do
    [ $quick = no ] || [ "$marked" = "$precision" ] || continue
    # shellcheck disable=SC2086
    one_row "$name" "$precision" "$steps" $words </dev/null || failed=1
  done
done <<END
$rows
END
exit $failed

#!/bin/bash
# The script of `make demo`: downloads the corpus, trains examples/demo.toml for about STRATA_DEMO_SECONDS (150), evaluates
# the model on held-out text, and prints samples. Run it again to resume after an interruption, or to repeat the results;
# `rm -r demo` starts over. With STRATA_DEMO_CHECK=1 it fails unless the model predicts the held-out text better than
# xz -9 compresses it.
set -euo pipefail
cd "$(dirname "$0")/.."
strata=build/release/bin/strata
config=examples/demo.toml
held=demo/corpus/held-out.txt
seconds=${STRATA_DEMO_SECONDS:-150}
tokens_per_step=$((8 * 256))

heading() { printf '\n== %s\n' "$*"; }
# number NAME <JSON: prints the first number with that name; needs no JSON parser.
number() { sed -nE "s/.*\"$1\": *([-+0-9.eE]+).*/\1/p" | head -n 1; }

tools/demo-corpus.sh

# Measure how many steps fit, because the learning-rate schedule must end when the time does.
if [ ! -e demo/steps ]; then
  heading "Tokenizer, and a few steps to measure the speed of this machine"
  rm -rf demo/speed
  "$strata" train "$config" --set run.folder=demo/speed --set training.steps=24 --set eval.interval=never >demo/speed.log 2>&1 || {
    status=$?
    cat demo/speed.log >&2
    exit "$status"
  }
  # The median of later steps; the first ones also warm the caches.
  speed=$(tail -n +9 demo/speed/metrics.jsonl | sed -nE 's/.*"tokens_per_s": *([0-9.eE+]+).*/\1/p' | sort -g |
    awk '{ v[NR] = $1 } END { if (NR) printf "%d", v[int((NR + 1) / 2)] }')
  rm -rf demo/speed demo/speed.log
  [ -n "$speed" ] || { echo "the trial run wrote no tokens_per_s" >&2; exit 1; }
  # At least enough for a readable sample, at most as much as this small corpus supports.
  steps=$((speed * seconds / tokens_per_step / 10 * 10))
  steps=$((steps < 300 ? 300 : steps > 3000 ? 3000 : steps))
  echo "$speed tokens/s: $steps steps, about $((steps * tokens_per_step / speed)) seconds"
  echo "$steps" >demo/steps
fi

heading "Training"
"$strata" train "$config" --set training.steps="$(cat demo/steps)"

heading "Held-out text: six books that were not in the training text"
model_bits=$("$strata" eval --model demo/run/final --text "$held" --sequence-length 256 --stride 128 --json |
  number bits_per_byte)
train_compressed=$(cat demo/corpus/train/*.txt | xz -9 -c | wc -c)
both_compressed=$(cat demo/corpus/train/*.txt "$held" | xz -9 -c | wc -c)
xz_bits=$(awk -v a="$both_compressed" -v b="$train_compressed" -v n="$(wc -c <"$held")" 'BEGIN { printf "%.3f", 8 * (a - b) / n }')
better=$(awk -v m="$model_bits" -v x="$xz_bits" 'BEGIN { print m < x ? 1 : 0 }')
printf 'bits per byte: the model %.3f, xz -9 after seeing the training text %s\n' "$model_bits" "$xz_bits"
if [ "$better" = 1 ]; then
  echo "The model predicts this text better than xz compresses it."
else
  echo "xz compresses this text better: the model needs more training. Train longer: rm -r demo/run demo/steps; STRATA_DEMO_SECONDS=600 make demo"
fi

heading "Samples"
for prompt in "And it came to pass" "The LORD said unto" "Blessed is the man that"; do
  "$strata" generate --model demo/run/final --prompt "$prompt" --max-tokens 80 --temperature 0.7 --top-p 0.95 --seed 7
  echo
done

heading "Results"
cat <<'END'
  demo/run/index.html       the run report: loss, learning rate, samples, time by part of a step
  demo/run/loss.svg         the loss curve
  demo/run/metrics.jsonl    metrics, one line per step
  demo/run/final/           the model, as a Hugging Face directory
  demo/corpus/              the text
  examples/demo.toml        the configuration, a template for your own

Next steps:
  build/release/bin/strata generate --model demo/run/final --prompt "In those days"
  build/release/bin/strata train YOUR.txt                   trains on your text, sized to this machine
  build/release/bin/strata init --data YOUR_FOLDER          writes a commented configuration to edit
  build/release/bin/strata --help                           every command
END
if [ -n "${STRATA_DEMO_CHECK:-}" ] && [ "$better" != 1 ]; then
  echo "STRATA_DEMO_CHECK: the model is not better than xz" >&2
  exit 1
fi

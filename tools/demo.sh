#!/bin/bash
# What `make demo` runs once the program is built: fetches the corpus, trains examples/demo.toml for about
# STRATA_DEMO_SECONDS (150) on this machine, measures the model on text it never saw, and shows what it writes.
# Interrupted, it goes on where it was; finished, it shows the results again. `rm -r demo` starts anew.
# With STRATA_DEMO_CHECK=1 it fails unless the model predicts the held-out text better than xz -9 packs it.
set -euo pipefail
cd "$(dirname "$0")/.."
strata=build/release/bin/strata
config=examples/demo.toml
held=demo/corpus/held-out.txt
seconds=${STRATA_DEMO_SECONDS:-150}
tokens_per_step=$((8 * 256))

say() { printf '\n== %s\n' "$*"; }
# number NAME <JSON: the first number of that name, without a JSON parser.
number() { sed -nE "s/.*\"$1\": *([-+0-9.eE]+).*/\1/p" | head -n 1; }

tools/demo-corpus.sh

# How many steps fit is measured, not guessed: the learning-rate schedule has to end when the time does.
if [ ! -e demo/steps ]; then
  say "Tokenizer and a few steps to see how fast this machine is"
  rm -rf demo/speed
  "$strata" train "$config" --set run.folder=demo/speed --set training.steps=24 --set eval.interval=never >demo/speed.log 2>&1 || {
    status=$?
    cat demo/speed.log >&2
    exit "$status"
  }
  # The median of the later steps; the first ones also warm caches up.
  speed=$(tail -n +9 demo/speed/metrics.jsonl | sed -nE 's/.*"tokens_per_s": *([0-9.eE+]+).*/\1/p' | sort -g |
    awk '{ v[NR] = $1 } END { if (NR) printf "%d", v[int((NR + 1) / 2)] }')
  rm -rf demo/speed demo/speed.log
  [ -n "$speed" ] || { echo "the trial run wrote no tokens_per_s" >&2; exit 1; }
  # At least what a readable sample needs, at most what this corpus is good for.
  steps=$((speed * seconds / tokens_per_step / 10 * 10))
  steps=$((steps < 300 ? 300 : steps > 3000 ? 3000 : steps))
  echo "$speed tokens/s: $steps steps, about $((steps * tokens_per_step / speed)) seconds"
  echo "$steps" >demo/steps
fi

say "Training"
"$strata" train "$config" --set training.steps="$(cat demo/steps)"

say "Held-out text: six books that were not in the training text"
model_bits=$("$strata" eval --model demo/run/final --text "$held" --sequence-length 256 --stride 128 --json |
  number bits_per_byte)
train_packed=$(cat demo/corpus/train/*.txt | xz -9 -c | wc -c)
both_packed=$(cat demo/corpus/train/*.txt "$held" | xz -9 -c | wc -c)
xz_bits=$(awk -v a="$both_packed" -v b="$train_packed" -v n="$(wc -c <"$held")" 'BEGIN { printf "%.3f", 8 * (a - b) / n }')
better=$(awk -v m="$model_bits" -v x="$xz_bits" 'BEGIN { print m < x ? 1 : 0 }')
printf 'bits per byte: the model %.3f, xz -9 after seeing the training text %s\n' "$model_bits" "$xz_bits"
if [ "$better" = 1 ]; then
  echo "The model predicts this text better than xz packs it."
else
  echo "The model is behind xz here: it trained too little. STRATA_DEMO_SECONDS=600 make demo gives it more time."
fi

say "What it writes"
for prompt in "And it came to pass" "The LORD said unto" "Blessed is the man that"; do
  "$strata" generate --model demo/run/final --prompt "$prompt" --max-tokens 80 --temperature 0.7 --top-p 0.95 --seed 7
  echo
done

say "Where everything is"
cat <<'END'
  demo/run/index.html       the run in a browser: loss, learning rate, samples, where the time goes
  demo/run/loss.svg         the loss curve
  demo/run/metrics.jsonl    one line of numbers a step
  demo/run/final/           the model, as a Hugging Face directory
  demo/corpus/              the text
  examples/demo.toml        the configuration, to copy and change

Go on with it, and then with text of your own:
  build/release/bin/strata generate --model demo/run/final --prompt "In those days"
  build/release/bin/strata train YOUR.txt                   trains on your text, sized to this machine
  build/release/bin/strata init --data YOUR_FOLDER          writes a commented configuration to edit
  build/release/bin/strata --help                           every command
END
if [ -n "${STRATA_DEMO_CHECK:-}" ] && [ "$better" != 1 ]; then
  echo "STRATA_DEMO_CHECK is set and the model is not better than xz" >&2
  exit 1
fi

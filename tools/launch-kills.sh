#!/bin/bash
# tools/launch-kills.sh [KILLS [SEED]]: trains small runs under strata launch, on 1 to 4 ranks in turn, and kills random ranks
# with SIGKILL until KILLS (100) have been killed. Each run must finish with the bits of a run without failures. Prints, for
# each number of ranks, the kills, the median time from a kill to the end of the next first step (by the ledger) and the most
# steps that a restart undid. BIN (build/release/bin/strata): the program.
set -euo pipefail
cd "$(dirname "$0")/.."
kills=${1:-100}
RANDOM=${2:-1}
bin=$(realpath "${BIN:-build/release/bin/strata}")
[ -x "$bin" ] || { echo "error: [$bin] is not a program; run make build, or set BIN" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/strata-kills-XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$work/cache}
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
for i in $(seq 5000); do echo "line $i of a text: $((i * 7919 % 104729)) and $((i * i % 7907))"; done > "$work/text.txt"
cat > "$work/run.toml" <<END
model = { family = "llama3", vocab_size = 300, hidden_size = 32, intermediate_size = 48, num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 64 }
data = { train = ["$work/text.txt"] }
training = { sequence_length = 32, global_batch_size = 8, micro_batch_size = 1, steps = 4000 }
device = { threads = 1 }
checkpoint = { interval = "100 steps" }
eval = { interval = "never" }
END

# The bits of a run: the digests of the weights after each step.
bits() { grep -o '"step":[0-9]*\|"weights_digest":"[^"]*"' "$1/metrics.jsonl" | md5sum; }
ranks_of() { pgrep -f "^$bin train $work/run.toml .*run.folder=$1\$" || true; }

killed=0
per_round=5
for round in $(seq 1000); do
  [ "$killed" -lt "$kills" ] || break
  n=$((round % 4 + 1))
  whole=$work/whole-$n run=$work/run-$round
  start=("$bin" launch -n "$n" "$work/run.toml" --set "run.folder=$whole")
  [ -d "$whole" ] || "${start[@]}" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  start[-1]="run.folder=$run"
  end=$((killed + per_round < kills ? killed + per_round : kills))
  while :; do
    "${start[@]}" >> "$work/log-$round" 2>&1 &
    launch=$!
    while kill -0 "$launch" 2> /dev/null; do
      sleep "$((RANDOM % 3)).$((RANDOM % 1000 + 1000))"
      mapfile -t all < <(ranks_of "$run")
      if [ "${#all[@]}" -eq "$n" ] && [ "$killed" -lt "$end" ] && kill -KILL "${all[$((RANDOM % n))]}" 2> /dev/null; then
        killed=$((killed + 1))
      fi
    done
    code=0
    wait "$launch" || code=$?
    # Three kills without a save in between end the run; the same command resumes it.
    [ "$code" = 137 ] || [ "$code" = 141 ] || break
  done
  [ "$code" = 0 ] || { echo "round $round on $n ranks ended with $code" >&2; tail -n 20 "$work/log-$round" >&2; exit 1; }
  [ "$(bits "$whole")" = "$(bits "$run")" ] || { echo "round $round on $n ranks: other bits than without failures" >&2; exit 1; }
  cat "$run/ledger.jsonl" >> "$work/ledger-$n"
  rm -rf "$run"
  printf 'round %d, %d ranks: the same bits; %d kills so far\n' "$round" "$n" "$killed"
done
for n in 1 2 3 4; do
  [ -f "$work/ledger-$n" ] || continue
  recovery=$(grep -o '"recovery_s":[0-9.]*' "$work/ledger-$n" | cut -d: -f2 | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
  lost=$(grep -o '"lost_steps":[0-9]*' "$work/ledger-$n" | cut -d: -f2 | sort -g | tail -n 1)
  printf '%d ranks: %d failed attempts, median recovery %s s, at most %s steps undone\n' "$n" \
    "$(grep -c '"exit":137' "$work/ledger-$n" || true)" "${recovery:-none}" "$lost"
done
printf '%s, %s: %d ranks killed, load %s\n' "$(date -u +%F)" "$(git rev-parse --short HEAD)" "$killed" "$(cut -d' ' -f1 /proc/loadavg)"
left=$(pgrep -f "$work/run.toml" || true)
[ -z "$left" ] || { echo "processes are left: $left" >&2; exit 1; }

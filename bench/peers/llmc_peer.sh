#!/bin/bash
# LLMC_DIR=CHECKOUT bench/peers/llmc_peer.sh [--batch 4] [--length 512] [--steps 3] [--layers 12] [--warmup 1]: tokens per second of
# llm.c's CPU trainer (github.com/karpathy/llm.c, fp32) at GPT-2's 124M shape, on random weights and tokens. Compiled
# with llm.c's flags. Its step has no gradient clipping. Prints one JSON object.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -f "${LLMC_DIR:-}/train_gpt2.c" ] || { echo "LLMC_DIR must name a checkout of llm.c" >&2; exit 2; }
batch=4 length=512 steps=3 layers=12 warmup=1
while [ $# -ge 2 ]; do
  case $1 in
    --batch) batch=$2 ;;
    --length) length=$2 ;;
    --steps) steps=$2 ;;
    --layers) layers=$2 ;;
    --warmup) warmup=$2 ;;  # 0: includes the first step, which also allocates
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
mkdir -p build/peers
gcc -Ofast -fno-finite-math-only -march=native -fopenmp -DOMP -w -I "$LLMC_DIR" bench/peers/llmc_peer.c \
  -o build/peers/llmc_peer -lm
build/peers/llmc_peer build/peers/llmc-random.bin "$batch" "$length" "$steps" "$layers" "$warmup" | tail -n 1

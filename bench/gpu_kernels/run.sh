#!/bin/sh
# run.sh [PARTS]: checks and times the kernels beside their peers on this machine's GPU, from a folder that bundle.sh made. Results go to
# $OUT (default: results).
here=$(dirname "$0")
out=${OUT:-results}
mkdir -p "$out"
chmod +x "$here/kernels_bench"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw --format=csv,noheader
date +%T
timeout "${KERNELS_SECONDS:-90}" "$here/kernels_bench" "$here" "$out/kernels.jsonl" "$1" 2>&1 || echo "kernels_bench ended with $?"
date +%T
PYTHONUNBUFFERED=1 timeout "${PEERS_SECONDS:-90}" python3 "$here/peers.py" "$out/peers.jsonl" "$1" 2>&1 || echo "peers.py ended with $?"
date +%T
nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw --format=csv,noheader
python3 "$here/report.py" "$out/kernels.jsonl" "$out/peers.jsonl" | tee "$out/report.txt"

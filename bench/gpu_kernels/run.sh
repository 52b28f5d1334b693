#!/bin/sh
# run.sh [PARTS]: checks and times the kernels and their peers on this machine's GPU, from a folder made by bundle.sh. Results go to
# $OUT (default: results). The kernels of sm_90a run last and separately: no executor has run them, and a kernel that hangs stops the rest.
here=$(dirname "$0")
out=${OUT:-results}
mkdir -p "$out"
chmod +x "$here/kernels_bench"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw --format=csv,noheader
parts=${1:-gemm attention experts rows wgmma}
kernels() {
  timeout "$3" "$here/kernels_bench" "$here" "$out/$2.jsonl" "$1" 2>&1 || echo "kernels_bench ended with $?"
  date +%T
}
date +%T
plain=$(echo "$parts" | sed 's/ *wgmma *//')
if [ -n "$plain" ]; then kernels "$plain" plain "${KERNELS_SECONDS:-90}"; fi
PYTHONUNBUFFERED=1 timeout "${PEERS_SECONDS:-90}" python3 "$here/peers.py" "$out/peers.jsonl" "$parts" 2>&1 || echo "peers.py ended with $?"
date +%T
case $parts in *wgmma*) kernels wgmma wgmma "${WGMMA_SECONDS:-30}" ;; esac
nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw --format=csv,noheader
cat "$out/plain.jsonl" "$out/wgmma.jsonl" > "$out/kernels.jsonl" 2>/dev/null
python3 "$here/report.py" "$out/kernels.jsonl" "$out/peers.jsonl" | tee "$out/report.txt"

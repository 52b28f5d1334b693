#!/bin/sh
# gpu.sh [--minutes N] [--peers] [OUT]: checks and measures this machine's GPU, from a bundle of `make gpu-bundle`. Needs an
# NVIDIA driver and glibc 2.36 or later; no compiler, no network.
#
# First `strata doctor --self-test` (8 minutes unless --minutes says otherwise). OUT (default: gpu-report) receives
# self_test.jsonl, a line for each part as soon as it has ended, self_test.txt and card.txt, so a cut leaves a report. With --peers
# then what needs more than a driver: the same training steps in PyTorch (python3 with a torch that has CUDA) and the self-test
# under compute-sanitizer, where they are found: peers.jsonl, sanitizer.txt.
# Exits with 0 if the self-test passed, 1 if it did not, 2 for wrong arguments, 4 if the GPU cannot be used.
set -u
here=$(cd "$(dirname "$0")" && pwd)
minutes=8 peers='' out=''
usage() {
  sed -n 2p "$0" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --minutes)
      [ $# -ge 2 ] || usage
      minutes=$2
      shift
      ;;
    --peers) peers=yes ;;
    -*) usage ;;
    *)
      [ -z "$out" ] || usage
      out=$1
      ;;
  esac
  shift
done
case $minutes in '' | *[!0-9]*) usage ;; esac
out=${out:-gpu-report}

cannot() {
  echo "gpu.sh: $*" >&2
  exit 4
}
[ "$(uname -m)" = x86_64 ] || cannot "found a $(uname -m) machine, expected x86_64: make the bundle on such a machine"
# "glibc 2.36"; musl has no getconf of this name.
c_library=$(getconf GNU_LIBC_VERSION 2>/dev/null) || c_library='another C library'
case $c_library in
  glibc\ *)
    major=${c_library#glibc }
    minor=${major#*.}
    major=${major%%.*}
    minor=${minor%%.*}
    if [ "$major" -lt 2 ] || { [ "$major" -eq 2 ] && [ "$minor" -lt 36 ]; }; then
      cannot "found $c_library, expected 2.36 or later: use an image of Debian 12, Ubuntu 24.04 or newer"
    fi
    ;;
  *) cannot "found $c_library, expected glibc 2.36 or later: use an image of Debian 12, Ubuntu 24.04 or newer" ;;
esac
mkdir -p "$out" || exit 4
for file in strata/bin/strata expected.zst; do
  [ -e "$here/$file" ] || cannot "$here/$file is missing: run gpu.sh of an unpacked bundle"
done

# In NVIDIA's containers the driver is in a folder that not every image searches.
if [ -d /usr/local/nvidia/lib64 ]; then
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64"
fi
strata=$here/strata/bin/strata
{
  date -u
  uname -a
  nvidia-smi -q
} >"$out/card.txt" 2>&1

# A kernel that hangs cannot be cut by the program.
timeout -k 10 $((minutes * 60 + 120)) "$strata" doctor --self-test --minutes "$minutes" \
  --expected "$here/expected.zst" --report "$out/self_test.jsonl" --force >"$out/self_test.txt" 2>"$out/log.txt"
status=$?
cat "$out/self_test.txt"
if [ $status -eq 124 ] || [ $status -eq 137 ]; then
  for part in machine kernels ops curves resume steps rates; do
    grep -q "\"part\":\"$part\"" "$out/self_test.jsonl" || echo "$part: not run, the self-test hung before it ended"
  done
  status=1
elif [ $status -ne 0 ] && [ $status -ne 1 ]; then
  tail -n 5 "$out/log.txt" >&2
fi
[ ! -s "$out/self_test.jsonl" ] || echo "report: $out/self_test.jsonl"
[ -n "$peers" ] || exit $status

: >"$out/peers.jsonl"
if python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  for model in llama3-29m gpt2-124m; do
    timeout 300 python3 "$here/pytorch_peer.py" --device cuda --model $model --mode compile --dtype bf16 --batch 16 --length 1024 \
      >>"$out/peers.jsonl" 2>>"$out/log.txt" || echo "peer $model: ended with $?"
  done
  python3 - "$out/self_test.jsonl" "$out/peers.jsonl" <<'PYTHON'
import json, sys
ours = {}
for line in open(sys.argv[1]):
    part = json.loads(line)
    if part["part"] == "steps":
        ours = part["facts"]
for line in open(sys.argv[2]):
    peer = json.loads(line)
    mine = ours.get(f'{peer["model"]} {peer["batch"]}x{peer["length"]} bf16', {})
    if "step_seconds" in mine:
        print(f'{peer["model"]}: {1e3 * mine["step_seconds"]:.2f} ms a step, torch.compile {1e3 * peer["step_s"]:.2f} ms, '
              f'ratio {peer["step_s"] / mine["step_seconds"]:.2f}')
    else:
        print(f'{peer["model"]}: torch.compile {1e3 * peer["step_s"]:.2f} ms a step, ours was not run')
PYTHON
else
  echo "peers: not run, python3 has no torch that can use the GPU"
fi
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$sanitizer" ]; then
  : >"$out/sanitizer.txt"
  for tool in memcheck racecheck; do
    timeout -k 10 600 "$sanitizer" --tool $tool --error-exitcode 9 "$strata" doctor --self-test --minutes 2 >>"$out/sanitizer.txt" 2>&1
    case $? in
      9) echo "compute-sanitizer $tool: errors, see $out/sanitizer.txt" && status=1 ;;
      0 | 1) echo "compute-sanitizer $tool: no errors" ;; # 1: parts were cut
      *) echo "compute-sanitizer $tool: did not end, see $out/sanitizer.txt" ;;
    esac
  done
else
  echo "compute-sanitizer: not run, it was not found"
fi
exit $status

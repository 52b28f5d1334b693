#!/bin/bash
# Runs the GPU tests on a GPU, compares it with the PTX executor, and measures it (tests/gpu/README.md).
#
#   bench/gpu_hardware.sh bundle BUILD FOLDER   collects programs, PTX and libraries; needs nvcc's ptxas
#   FOLDER/gpu_hardware.sh run OUT              runs everything on a machine with a driver
#
# A failing part does not stop the others. OUT receives report.txt, compare.csv, mma.csv, mma.bin,
# mma_samples.txt, facts.json and card.txt.
set -u
here=$(cd "$(dirname "$0")" && pwd)

bundle() {
  build=$1 folder=$2
  set -e
  cmake --build "$build" --target gpu_tests gpu_compare gpu_facts
  mkdir -p "$folder/lib"
  for program in gpu_tests gpu_compare gpu_facts; do
    strip -o "$folder/$program" "$build/bin/$program"
    # All except the C library, which the machine has.
    ldd "$build/bin/$program" | awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libdl|libpthread|librt)\.so/ { print $3 }' |
      xargs -I{} cp -L {} "$folder/lib"
  done
  for architecture in 80 90a; do
    cp "$build/tests/gpu/samples_sm_$architecture.ptx" "$folder"
    "${PTXAS:-ptxas}" -arch=sm_90a -o "$folder/samples_sm_$architecture.cubin" "$folder/samples_sm_$architecture.ptx"
  done
  cp "$build/tests/gpu/mma_h200.txt" "$0" "$folder"
  du -sh "$folder"
}

# The bundle's libraries take precedence; in NVIDIA's containers the driver is in a separate folder.
libraries=$here/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64

# step NAME SECONDS COMMAND…: appends the command's output to the report.
step() {
  name=$1 limit=$2
  shift 2
  begin=$(date +%s.%N)
  {
    echo "== $name"
    LD_LIBRARY_PATH=$libraries timeout "$limit" "$@" 2>&1
    echo "== $name: status $?, $(echo "$(date +%s.%N) $begin" | awk '{ printf "%.1f", $1 - $2 }') s"
  } >>"$out/report.txt"
}

summary() {
  echo "--- steps"
  grep -E '^== .*status' "$out/report.txt"
  echo "--- tests that failed"
  grep -E '^\[  FAILED  \] [A-Za-z/]+\.' "$out/report.txt" | sort -u | head -30
  echo "--- instructions"
  grep -E '^[a-z]+: [0-9]+ (instructions|shapes)' "$out/report.txt"
  grep -E '^  (differs|bits of NaN)' "$out/report.txt" | cut -c1-170 | head -40
  echo "--- mma: results that the executor's sum of Hopper and the best model give, of all"
  grep -E '^  (hopper|model),' "$out/report.txt" |
    awk -F, '{ all[$1 "," $2 "," $3] += $5; same[$1 "," $2 "," $3] += $6 } END { for (n in all) print n ": " same[n] " of " all[n] }'
  echo "--- facts"
  command -v python3 >/dev/null && python3 - "$out/facts.json" <<'PYTHON'
import json, sys
facts = json.load(open(sys.argv[1]))
def show(name, keys):
    section = facts.get(name, {})
    print(name, {key: section.get(key) for key in keys})
show("card", ["name", "multiprocessors", "clock_khz", "l2_bytes", "shared_bytes_per_block_opt_in"])
show("launches", ["empty_back_to_back_500", "empty_and_wait_us", "ping_pong_of_two_streams_200"])
print("arithmetic", {key: value["tera_operations_s"] for key, value in facts.get("arithmetic", {}).items() if isinstance(value, dict)})
for section, keys in (("device_copies", ["rotated_copy_gb_s", "kernel_gb_s"]), ("host_copies", ["to_device_gb_s", "to_host_gb_s"])):
    for size in facts.get(section, {}).get("sizes", [])[-2:]:
        print(section, size["bytes"], {key: size[key] for key in keys})
print("loading", {key: value.get("load_us") for key, value in facts.get("loading", {}).items() if isinstance(value, dict)})
PYTHON
}

run() {
  out=$1
  mkdir -p "$out"
  : >"$out/report.txt"
  chmod +x "$here"/gpu_* 2>/dev/null
  export CUDA_CACHE_DISABLE=1 XDG_CACHE_HOME=${TMPDIR:-/tmp}/gpu_tests STRATA_GPU_KERNELS=$here
  { nvidia-smi -q; lscpu; uname -a; free -g; } >"$out/card.txt" 2>&1

  step facts 90 "$here/gpu_facts" "$out" "$here"
  if grep '^gpu_facts: ' "$out/report.txt"; then exit 1; fi # no driver or no GPU
  for part in mma integer float approximate convert compare warp memory; do
    step "compare $part" 60 "$here/gpu_compare" "$out" "$part"
  done
  # A kernel error makes the process unusable, so each suite runs in a separate process.
  suites=$(LD_LIBRARY_PATH=$libraries "$here/gpu_tests" --gtest_list_tests | grep -oE '^[A-Z][A-Za-z/]*\.')
  for suite in $suites; do
    step "tests $suite" 60 env STRATA_GPU_TESTS=hardware "$here/gpu_tests" --gtest_brief=1 "--gtest_filter=$suite*"
  done
  summary
}

case "${1:-} $#" in
  "bundle 3") bundle "$2" "$3" ;;
  "run 2") run "$2" ;;
  *)
    sed -n '2,8p' "$0" >&2
    exit 2
    ;;
esac

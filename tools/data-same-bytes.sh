#!/bin/bash
# tools/data-same-bytes.sh RECIPE.toml [OPTIONS of strata data build]: runs the recipe with one thread, with two threads,
# with three MPI ranks, and with repeated SIGKILLs, and compares every byte of the output. Prints OK or the differences.
# Also checks that each record is either in the output or in the audit. STRATA sets the program (default:
# build/release's), WORK the folder for the results (default: a temporary one).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
strata=${STRATA:-$root/build/release/bin/strata}
[ $# -ge 1 ] || { echo "usage: tools/data-same-bytes.sh RECIPE.toml [OPTIONS of strata data build]" >&2; exit 2; }
[ -x "$strata" ] || { echo "build the program first: make build" >&2; exit 2; }
work=${WORK:-$(mktemp -d)}
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work"
export OMP_WAIT_POLICY=passive

build() {  # FOLDER THREADS
  "$strata" data build "${arguments[@]}" --set build.folder="$work/$1" --set build.workers="$2" >"$work/$1.log" 2>&1
}
failed() { echo "$1 failed:" >&2; tail -n 5 "$work/$1.log" >&2; exit 1; }
# The progress of a build: the number of finished files.
parts() { find "$work/killed" -name 'part-*' ! -name '*.part' ! -name '.*' 2>/dev/null | wc -l; }

arguments=("$@")
rm -rf "$work"/{one,two,ranks,killed}
echo "one thread"
build one 1 || failed one
echo "two threads"
build two 2 || failed two
launch=()
if command -v mpirun >/dev/null; then
  launch=(mpirun -n 3 --oversubscribe)
  [ "$(id -u)" != 0 ] || launch+=(--allow-run-as-root)
  echo "three ranks"
  "${launch[@]}" "$strata" data build "${arguments[@]}" --set build.folder="$work/ranks" --set build.workers=1 \
    >"$work/ranks.log" 2>&1 || failed ranks
else
  echo "three ranks: skipped, mpirun is not installed"
fi

# Kill the build whenever two more parts are finished, and once before the first.
kills=0 target=0
while :; do
  build killed 2 & process=$!
  while kill -0 $process 2>/dev/null && [ "$(parts)" -lt "$target" ]; do sleep 0.05; done
  [ "$target" -gt 0 ] || sleep 0.5
  # The program is a child of the subshell that runs `build`, or that shell itself.
  children=$(ps -o pid= --ppid $process || true)
  if kill -0 $process 2>/dev/null; then
    kill -9 $children $process 2>/dev/null && kills=$((kills + 1))
  fi
  if wait $process 2>/dev/null; then break; fi
  target=$(($(parts) + 2))
  [ ! -e "$work/killed/manifest.json" ] || break
  [ $kills -lt 40 ] || target=1000000
done
build killed 2 || failed killed
echo "killed and resumed $kills times"

read -r documents audited read_records <<<"$(python3 - "$work/one" <<'PY'
import glob, gzip, json, subprocess, sys
def lines(folder):
    count = 0
    for path in glob.glob(f"{sys.argv[1]}/{folder}/part-*"):
        if path.endswith(".zst"):
            data = subprocess.run(["zstd", "-dcq", path], stdout=subprocess.PIPE, check=True).stdout
        else:
            data = (gzip.open if path.endswith(".gz") else open)(path, "rb").read()
        count += data.count(b"\n")
    return count
print(lines("documents"), lines("audit"), json.load(open(sys.argv[1] + "/manifest.json"))["documents_in"])
PY
)"
bad=0
echo "$read_records records: $documents kept + $audited in the audit"
[ $((documents + audited)) = "$read_records" ] || { echo "records are missing" >&2; bad=1; }
for other in two ${launch:+ranks} killed; do
  if diff -rq -x .lock -x work "$work/one" "$work/$other"; then :; else
    echo "differs: $other" >&2
    bad=1
  fi
done
[ $bad = 0 ] && echo "OK: $(find "$work/one" -type f ! -name .lock | wc -l) files, the same bytes for one and two threads${launch:+, three ranks} and a build killed $kills times"
exit $bad

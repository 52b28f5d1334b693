#!/bin/sh
# check_script.sh GPU_SH: bench/gpu.sh with imitated programs: old C libraries, no driver, a self-test that hangs, bad arguments.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bundle/strata/bin" "$folder/bin"
cp "$1" "$folder/bundle/gpu.sh"
: >"$folder/bundle/expected.zst"
failed=0

# program NAME: from standard input, in the PATH of gpu.sh.
program() {
  { echo '#!/bin/sh' && cat; } >"$folder/bin/$1"
  chmod +x "$folder/bin/$1"
}
strata() {
  { echo '#!/bin/sh' && cat; } >"$folder/bundle/strata/bin/strata"
  chmod +x "$folder/bundle/strata/bin/strata"
}
# expect STATUS TEXT [ARGUMENT…]
expect() {
  status=$1 text=$2
  shift 2
  output=$(PATH="$folder/bin:$PATH" "$folder/bundle/gpu.sh" "$@" "$folder/out" 2>&1)
  found=$?
  case $output in
    *"$text"*) [ $found -eq "$status" ] && return ;;
  esac
  echo "gpu.sh $*: found exit $found and"
  echo "$output"
  echo "expected exit $status and: $text"
  failed=1
}

program getconf <<'E2'
echo glibc 2.36
E2
program uname <<'E2'
echo x86_64
E2
# Writes its first part and goes on for ever, where it should.
strata <<'E2'
while [ $# -gt 0 ]; do
  [ "$1" != --report ] || report=$2
  shift
done
echo '{"part":"machine"}' >"$report"
[ ! -e "$report.hang" ] || exec sleep 100
echo "passed"
E2
expect 0 passed
expect 2 --minutes --minutes x
expect 2 --minutes --unknown
program getconf <<'E2'
echo glibc 2.31
E2
expect 4 'found glibc 2.31, expected 2.36 or later'
program getconf <<'E2'
exit 1
E2
expect 4 'found another C library'
program getconf <<'E2'
echo glibc 3.1
E2
expect 0 passed
# `timeout` ends a self-test that hangs, here after a second.
: >"$folder/out/self_test.jsonl.hang"
program timeout <<'E2'
shift 3
"$@" & 
sleep 1
kill $!
exit 124
E2
expect 1 'ops: not run, the self-test hung'
rm "$folder/bin/timeout" "$folder/out/self_test.jsonl.hang"
strata <<'E2'
echo '[device.kind] found no NVIDIA driver' >&2
exit 4
E2
expect 4 'no NVIDIA driver'
program uname <<'E2'
echo aarch64
E2
expect 4 'found a aarch64 machine, expected x86_64'
exit $failed

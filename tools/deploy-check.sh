#!/bin/bash
# tools/deploy-check.sh: whether what deploy/ holds can be read by what will read it: the Slurm script by bash and by
# shellcheck, the Kubernetes job by yamllint, the container file by its instructions. The packages that it installs
# are held against Debian's lists and against the libraries that the built program asks for.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
fail() {
  echo "deploy/$1: $2" >&2
  failed=1
}

bash -n deploy/slurm.sh && shellcheck deploy/slurm.sh || failed=1
yamllint --strict -d '{extends: default, rules: {line-length: {max: 120}, document-start: disable}}' deploy/mpijob.yaml ||
  failed=1

# Lines that end in a backslash go on; comments may stand between them.
joined=$(sed -e '/^[[:space:]]*#/d' deploy/Containerfile | sed -e ':again' -e '/\\$/{N;s/\\\n//;b again' -e '}')
stages=" "
while read -r word rest; do
  case "$word" in
    '') ;;
    FROM) [[ "$rest" != *" AS "* ]] || stages+="${rest##* AS } " ;;
    COPY)
      if [[ "$rest" == --from=* ]]; then
        from=${rest%% *}
        [[ "$stages" == *" ${from#--from=} "* ]] || fail Containerfile "there is no stage ${from#--from=} before $from"
      fi ;;
    RUN) bash -n <<< "$rest" || fail Containerfile "bash cannot read: $rest" ;;
    ARG | CMD | ENTRYPOINT | ENV | EXPOSE | HEALTHCHECK | LABEL | ONBUILD | SHELL | STOPSIGNAL | USER | VOLUME | WORKDIR | ADD) ;;
    *) fail Containerfile "$word is no instruction" ;;
  esac
done <<< "$joined"
[ "$stages" != " " ] || fail Containerfile "it names no stage"

installed=$(grep -o 'install -y --no-install-recommends [^&]*' <<< "$joined" | cut -d' ' -f4- | tr -s ' ' '\n' | sort -u)
if [ -n "$(apt-cache search --names-only '^openmpi-bin$' 2>/dev/null)" ]; then
  for package in $installed; do
    apt-cache show "$package" > /dev/null 2>&1 || fail Containerfile "Debian has no package $package"
  done
fi
program=build/release/bin/strata
if [ -x "$program" ] && command -v dpkg-query > /dev/null; then
  # What is needed directly; packages bring what they need themselves. The C and C++ libraries are always there.
  for library in $(objdump -p "$program" | awk '$1 == "NEEDED" { print $2 }'); do
    path=$(ldd "$program" | awk -v name="$library" '$1 == name { print $3 }')
    package=$(dpkg-query -S "$(readlink -f "$path")" 2>/dev/null || dpkg-query -S "$path" 2>/dev/null || true)
    package=${package%%:*}
    case "$package" in
      libc6 | libstdc++6 | libgcc-s1 | '') ;;
      *) grep -qx "$package" <<< "$installed" || fail Containerfile "the program needs $library of $package" ;;
    esac
  done
fi
[ "$failed" = 0 ] && echo "deploy/ can be read"
exit "$failed"

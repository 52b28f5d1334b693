#!/bin/bash
# tools/deploy-check.sh: validates the files of deploy/: the Slurm script with bash and shellcheck, the Kubernetes job with
# yamllint, and the instructions of the container file. Its packages must exist in Debian and cover the libraries that
# the built program links.
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

# A backslash continues a line; comments may come in between.
joined=$(sed -e '/^[[:space:]]*#/d' deploy/Containerfile | sed -e ':again' -e '/\\$/{N;s/\\\n//;b again' -e '}')
stages=" "
while read -r word rest; do
  case "$word" in
    '') ;;
    FROM) [[ "$rest" != *" AS "* ]] || stages+="${rest##* AS } " ;;
    COPY)
      if [[ "$rest" == --from=* ]]; then
        from=${rest%% *}
        [[ "$stages" == *" ${from#--from=} "* ]] || fail Containerfile "$from: no earlier stage has this name"
      fi ;;
    RUN) bash -n <<< "$rest" || fail Containerfile "bash cannot parse: $rest" ;;
    ARG | CMD | ENTRYPOINT | ENV | EXPOSE | HEALTHCHECK | LABEL | ONBUILD | SHELL | STOPSIGNAL | USER | VOLUME | WORKDIR | ADD) ;;
    *) fail Containerfile "$word is not an instruction" ;;
  esac
done <<< "$joined"
[ "$stages" != " " ] || fail Containerfile "no stage has a name"

installed=$(grep -o 'install -y --no-install-recommends [^&]*' <<< "$joined" | cut -d' ' -f4- | tr -s ' ' '\n' | sort -u)
if [ -n "$(apt-cache search --names-only '^openmpi-bin$' 2>/dev/null)" ]; then
  for package in $installed; do
    apt-cache show "$package" > /dev/null 2>&1 || fail Containerfile "Debian has no package $package"
  done
fi
program=build/release/bin/strata
if [ -x "$program" ] && command -v dpkg-query > /dev/null; then
  # Direct dependencies only; apt adds the others. The C and C++ libraries are always installed.
  for library in $(objdump -p "$program" | awk '$1 == "NEEDED" { print $2 }'); do
    path=$(ldd "$program" | awk -v name="$library" '$1 == name { print $3 }')
    package=$(dpkg-query -S "$(readlink -f "$path")" 2>/dev/null || dpkg-query -S "$path" 2>/dev/null || true)
    package=${package%%:*}
    case "$package" in
      libc6 | libstdc++6 | libgcc-s1 | '') ;;
      *) grep -qx "$package" <<< "$installed" || fail Containerfile "lacks package $package, which provides $library" ;;
    esac
  done
fi
[ "$failed" = 0 ] && echo "deploy/ is valid"
exit "$failed"

#!/bin/bash
# tests/docs/run_pages.sh STRATA: runs the commands of the quickstart pages and of README.md, page by page, in one scratch
# folder.
#
# Commands are the fenced blocks marked "sh"; other blocks are not run. To save time, `strata train` uses small
# batches, and two steps unless the page sets them. Stubs replace the commands that install and build: `make demo` trains
# the demo's configuration for a few steps on the documentation instead of the Bible. Without MPI, mpirun lines are
# skipped. STRATA_SHOW_PAGES=1 prints the output of the commands.
set -euo pipefail
source_tree=$(cd "$(dirname "$0")/../.." && pwd)
strata=$(realpath "$1")
work=$(mktemp -d --tmpdir strata-pages.XXXXXX)
trap 'rm -rf "$work"' EXIT
pages=(docs/quickstart.md docs/quickstart/{own-text,own-data,several-ranks,hand-over}.md README.md)
found=$(find "$source_tree/docs/quickstart" -name '*.md' | wc -l)
[ "$found" = $((${#pages[@]} - 2)) ] || { echo "run_pages.sh does not list every page of docs/quickstart" >&2; exit 1; }

mkdir "$work/bin" "$work/tree"
cp -r "$source_tree"/{README.md,docs,examples,Makefile} "$work/tree"
cat >"$work/bin/strata" <<END
#!/bin/bash
small="--set training.global_batch_size=4"
case "\$*" in
  "train "*--dry-run*) exec "$strata" "\$@" ;;
  "train "*training.steps=* | "check causality "*) exec "$strata" "\$@" \$small ;;
  "train "*) exec "$strata" "\$@" \$small --set training.steps=2 ;;
  *) exec "$strata" "\$@" ;;
esac
END
cat >"$work/bin/make" <<'END'
#!/bin/bash
# The target must exist; a shorter run replaces its commands.
grep -q "^$*:" Makefile || exit 2
[ "$*" = demo ] && [ ! -e demo ] || exit 0
mkdir -p demo/corpus/train
cp docs/a*.md demo/corpus/train/
for page in demo/corpus/train/*.md; do mv "$page" "${page%.md}.txt"; done
cp docs/resuming.md demo/corpus/held-out.txt
strata train examples/demo.toml
END
cat >"$work/bin/mpirun" <<END
#!/bin/bash
real=\$(PATH="$PATH" command -v mpirun) || { echo "mpirun is not installed: skipped"; exit 0; }
"\$real" --allow-run-as-root --oversubscribe -n 1 true >/dev/null 2>&1 || { echo "mpirun starts no processes: skipped"; exit 0; }
exec "\$real" --allow-run-as-root --oversubscribe "\$@"
END
printf '#!/bin/sh\n' >"$work/bin/apt-get"
chmod +x "$work"/bin/*
export PATH="$work/bin:$PATH"

cd "$work/tree"
for page in "${pages[@]}"; do
  awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$page" >"$work/commands"
  [ -s "$work/commands" ] || { echo "$page has no commands" >&2; exit 1; }
  begin=$SECONDS
  if ! bash -euxo pipefail "$work/commands" >"$work/log" 2>&1 </dev/null; then
    echo "$page: a command failed:" >&2
    tail -n 30 "$work/log" >&2
    exit 1
  fi
  echo "$page: $(grep -c '^+ ' "$work/log") commands, $((SECONDS - begin)) s"
  [ -z "${STRATA_SHOW_PAGES:-}" ] || cat "$work/log"
done

#!/bin/bash
# tools/data-corpus.sh [--size small|medium|large] [--parquet] FOLDER: makes a corpus of documentation, dictionaries and
# books from Debian packages in several file formats, with a recipe for it:
#   books/*.txt, *.md           plain text: the King James Bible, Jane Austen, essays
#   manuals/…                   plain text: the sources of manuals (Linux, Python), and Perl's in perl.jsonl; with
#                               --parquet perl.parquet (needs Python's pyarrow; reading it needs `make arrow`)
#   dictionaries/*.jsonl[.gz|.zst]   three dictionaries, about 4 kB of entries per document
#   html/PACKAGE/…              folders of web pages
#   crawl/*.warc, *.warc.gz     web pages in the format of crawls
#   held-out/                   six books of the Bible, not in any of the above: for decontamination and validation
#   debian.toml, train.toml     the recipe and the training run of examples/
# The packages are downloaded to FOLDER/packages and unpacked, not installed, so this does not need root.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

size=medium parquet= folder=
while [ $# -gt 0 ]; do
  case $1 in
    --size) size=${2:-}; shift ;;
    --parquet) parquet=--parquet ;;
    -*) echo "usage: tools/data-corpus.sh [--size small|medium|large] [--parquet] FOLDER" >&2; exit 2 ;;
    *) folder=$1 ;;
  esac
  shift
done
[ -n "$folder" ] || { echo "usage: tools/data-corpus.sh [--size small|medium|large] [--parquet] FOLDER" >&2; exit 2; }

# NAME, or PREFIX:PATTERN for names with a version, which differ between releases; the newest is used.
small="bible-kjv bible-kjv-text anarchism dict-foldoc dict-gcide perl-doc:^perl-doc$ git-doc:^git-doc$ \
  postgresql-doc-:^postgresql-doc-[0-9]+$ libboost:^libboost[0-9.]+-doc$"
medium="$small r-cran-janeaustenr dict-wn linux-doc-:^linux-doc-[0-9.]+$ python3.:^python3\.[0-9]+-doc$ sqlite3-doc \
  apache2-doc debian-handbook cppreference-doc-en-html erlang-doc"
case $size in
  small) wanted=$small ;;
  medium) wanted=$medium ;;
  large) wanted="$medium openjdk-:^openjdk-[0-9]+-doc$ rust-doc" ;;
  *) echo "--size is $size, expected small, medium or large" >&2; exit 2 ;;
esac
for program in apt-get apt-cache dpkg-deb python3; do
  command -v $program >/dev/null || { echo "$program is missing: this script needs a Debian system" >&2; exit 2; }
done
# The program that reads the Bible's text links to libreadline, which minimal systems lack.
ldconfig -p | grep -q 'libreadline\.so\.8 ' || wanted="$wanted libreadline8"

mkdir -p "$folder/packages"
chmod 755 "$folder" "$folder/packages"  # apt-get downloads as an unprivileged user
# The newest name that matches a pattern, of the packages in the folder or, if none matches, of all packages.
newest() { grep -E "$1" | sort -V | tail -n 1; }
names=
for want in $wanted; do
  name=${want%%:*} pattern=${want#*:}
  if [ "$name" != "$want" ]; then
    found=$(find "$folder/packages" -name '*.deb' -printf '%f\n' | sed 's/_.*//' | newest "$pattern") ||
      found=$(apt-cache pkgnames "$name" | newest "$pattern") || found=$name
    name=$found
  fi
  names="$names $name"
done

cached() { ls "$folder/packages/$1"_*.deb 2>/dev/null | sort -V | tail -n 1; }
missing=
for name in $names; do
  [ -z "$(cached "$name")" ] || continue
  cp "/var/cache/apt/archives/$name"_*.deb "$folder/packages/" 2>/dev/null || missing="$missing $name"
done
if [ -n "$missing" ]; then
  echo "Fetching Debian packages:$missing"
  download() { (cd "$folder/packages" && apt-get download -q $1 >log 2>&1); }
  if ! download "$missing"; then
    # Old package lists name files that the mirror no longer has; updating them needs root.
    if [ "$(id -u)" = 0 ]; then apt-get update -q >/dev/null 2>&1 || true; fi
    for name in $missing; do
      [ -n "$(cached "$name")" ] || download "$name" || { echo "$name: download failed:" >&2; tail -n 2 "$folder/packages/log" >&2; }
    done
  fi
fi
packages= absent=
for name in $names; do
  file=$(cached "$name")
  if [ -n "$file" ]; then packages="$packages $file"; else absent="$absent $name"; fi
done
[ -z "$absent" ] || echo "Omitted missing packages:$absent" >&2

python3 "$root/tools/data_corpus.py" $parquet "$folder" $packages
cp "$root/examples/data/debian.toml" "$folder/debian.toml"
cp "$root/examples/debian-train.toml" "$folder/train.toml"
cat <<END
Now:
  cd $folder
  strata tokenizer train --input books manuals dictionaries --vocab-size 4096 --output tokenizer.json
  strata data build debian.toml
  strata train train.toml
END

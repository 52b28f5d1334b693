#!/bin/bash
# tools/demo-corpus.sh: writes the text of the demo to demo/corpus, one file per book:
#   demo/corpus/train/*.txt    60 books of the King James Bible, 4.2 MB (public domain)
#   demo/corpus/held-out.txt   six whole books, held out of training
# The text comes from the Debian packages bible-kjv and bible-kjv-text, which are downloaded and unpacked, not
# installed, so this does not need root. Does nothing if the corpus exists.
set -euo pipefail
cd "$(dirname "$0")/.."
corpus=demo/corpus
[ ! -e "$corpus/complete" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"  # apt-get downloads as an unprivileged user
packages="bible-kjv bible-kjv-text"
# The program that unpacks the text links to libreadline, which minimal systems lack.
ldconfig -p | grep -q 'libreadline\.so\.8 ' || packages="$packages libreadline8"

echo "Fetching the corpus from Debian packages: $packages"
download() { (cd "$work" && apt-get download -q $packages >"$work/log" 2>&1); }
if ! download; then
  # Old package lists name files that the mirror no longer has; updating them needs root.
  if [ "$(id -u)" = 0 ]; then apt-get update -q >/dev/null 2>&1 || true; fi
  if ! download; then
    cat "$work/log" >&2
    echo "The demo's corpus could not be downloaded; see the output of apt-get above." >&2
    echo "To train on your own text instead, run build/release/bin/strata train YOUR.txt" >&2
    exit 1
  fi
fi
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/unpacked"; done

libraries=$(find "$work/unpacked" -name 'libreadline.so.8' -printf '%h\n' | head -n 1)
LD_LIBRARY_PATH="$libraries" "$work/unpacked/usr/bin/bible" -f -p "$work/unpacked/usr/lib" Gen1:1-Rev22:21 \
  >"$work/verses" </dev/null
verses=$(wc -l <"$work/verses")
[ "$verses" = 31102 ] || { echo "the package's Bible has $verses verses: expected 31102" >&2; exit 1; }

# "Gen1:1 In the beginning …": one file per book, an empty line between chapters, no verse numbers.
rm -rf "$corpus"
mkdir -p "$corpus/train"
awk -v corpus="$corpus" '
  {
    chapter = $1; sub(/:.*/, "", chapter)
    book = chapter; sub(/[0-9]+$/, "", book)
    sub(/^[^ ]+ /, "")
    if (book != last_book) file = sprintf("%s/train/%02d-%s.txt", corpus, ++books, book)
    if (book ~ /^(Ruth|Est|Jonah|Mal|Phi|Jas)$/) file = corpus "/held-out.txt"
    if (chapter != last_chapter && (file in begun)) print "" >file
    begun[file] = 1; last_book = book; last_chapter = chapter
    print >file
  }' "$work/verses"
printf '%s files for training, %s bytes; held out: %s bytes\n' "$(ls "$corpus/train" | wc -l)" \
  "$(cat "$corpus"/train/*.txt | wc -c)" "$(wc -c <"$corpus/held-out.txt")"
touch "$corpus/complete"

#!/usr/bin/env python3
"""Compares Strata's filters with datatrove's on the same documents, and times datatrove's.

    python bench/peers/filter_peer.py build/bin/data_filter_bench FILE.jsonl [DOCUMENTS]   # datatrove, spacy, xxhash

Each of the four published filters decides on every document independently, with spaCy's words. Prints the number of
equal decisions (with reason and, for C4, the rewritten text), each difference, and datatrove's MB/s.
"""
import json
import subprocess
import sys
import tempfile
import time

import xxhash
from datatrove.data import Document
from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter

FILTERS = [GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(), FineWebQualityFilter()]


def decide(filter_, text):
    document = Document(text=text, id="0")
    result = filter_.filter(document)
    return ("kept" if result is True else result[1]), document.text


def main():
    program, path = sys.argv[1:3]
    limit = int(sys.argv[3]) if len(sys.argv) > 3 else None
    with open(path, encoding="utf-8") as file:
        lines = [line for _, line in zip(range(limit or 1 << 60), file)]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as part:
        part.writelines(lines)
        part.flush()
        ours = subprocess.run([program, part.name, "decisions", "spacy"], check=True, capture_output=True, text=True).stdout.splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    equal = total = documents = 0
    start = time.time()
    for number, (text, line) in enumerate(zip(texts, ours)):
        theirs = []
        for i, filter_ in enumerate(FILTERS):
            reason, after = decide(filter_, text)
            theirs.append(reason)
            if i == 2:
                theirs.append(xxhash.xxh3_64_hexdigest(after.encode()) if reason == "kept" else "-")
        mine = line.split()
        same = [a == b for a, b in zip(mine, theirs)]
        equal += sum(same)
        total += len(same)
        documents += all(same)
        if not all(same):
            print("document", number, "ours", mine, "theirs", theirs)
    seconds = time.time() - start
    size = sum(len(text.encode()) for text in texts)
    print(f"{documents} of {len(texts)} documents equal, {equal} of {total} decisions; "
          f"datatrove {size / 1e6 / seconds:.2f} MB/s per process over {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

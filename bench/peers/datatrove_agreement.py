#!/usr/bin/env python3
"""Compares Strata's filters and MinHash with datatrove on the same documents.

    python bench/peers/datatrove_agreement.py BUILD FILE.jsonl... [--documents 4000] [--part filters|minhash]

BUILD is a build folder, whose bin/strata and bin/data_filter_bench run; FILE.jsonl has documents with "text". Needs
datatrove, spacy, xxhash, numpy. Documents are sampled evenly from the whole input.

filters: each of the four published filters decides on every document independently. Compares decision, reason and, for C4,
the output text: with words = "spacy" against unchanged datatrove, and with words = "whitespace" against datatrove with
str.split in place of its word splitting, on all documents and on those for which datatrove decides equally with both.

minhash: on the documents and copies of them with some words changed. Compares the clusters with those of datatrove's three
stages, and the number of found pairs with the prediction of the published curve P(s) = 1 - (1 - s^8)^14 from each copy's
exact Jaccard similarity to its original.
"""
import argparse
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

import datatrove.utils.hashes.xxhash as datatrove_xxhash
import xxhash
from datatrove.data import Document
from loguru import logger

# xxhash 4 takes only bytes, datatrove 0.10 passes str; xxhash 3 encoded them like this.
datatrove_xxhash.xxhash64 = lambda data: xxhash.xxh64_intdigest(data.encode() if isinstance(data, str) else data)

BUCKETS, ROWS, WORDS = 14, 8, 5


def share(part, whole):
    return f"{part} of {whole} ({100 * part / max(1, whole):.3f} %)"


def sample(paths, wanted):
    """Texts sampled evenly from all lines."""
    total = sum(1 for path in paths for _ in open(path, "rb"))
    step, texts, number = max(1.0, total / wanted), [], 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if number >= len(texts) * step:
                    texts.append(json.loads(line)["text"])
                number += 1
    return texts


def write_jsonl(path, texts):
    with open(path, "w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"id": str(number), "text": text}, ensure_ascii=False) + "\n")


def datatrove_decisions(texts, words):
    """One row per document: the four reasons ("kept" if there is none), and the hash of C4's output text."""
    import datatrove.pipeline.filters.fineweb_quality_filter as fineweb
    import datatrove.pipeline.filters.gopher_quality_filter as quality
    import datatrove.pipeline.filters.gopher_repetition_filter as repetition
    from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter
    from datatrove.utils.text import split_into_words
    split = split_into_words if words == "spacy" else lambda text, language=None: text.split()
    fineweb.split_into_words = quality.split_into_words = repetition.split_into_words = split
    filters = [GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(), FineWebQualityFilter()]
    rows = []
    for text in texts:
        row = []
        for number, filter_ in enumerate(filters):
            document = Document(text=text, id="0")
            try:
                result = filter_.filter(document)
            except ZeroDivisionError:
                result = (False, "no answer")  # datatrove fails on a text without words
            row.append("kept" if result is True else result[1])
            if number == 2:
                row.append(xxhash.xxh3_64_hexdigest(document.text.encode()) if result is True else "-")
        rows.append(row)
    return rows


def our_decisions(build, texts, words):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "texts.jsonl")
        write_jsonl(path, texts)
        out = subprocess.run([build / "bin/data_filter_bench", path, "decisions", words], check=True, capture_output=True,
                             text=True).stdout
    return [line.split() for line in out.splitlines()]


COLUMNS = {"gopher_repetition": (0,), "gopher_quality": (1,), "c4_quality": (2, 3), "fineweb_quality": (4,)}


def compare(title, ours, theirs, reference=None):
    """`reference`: other rows of the peer; a filter is compared only on documents for which both rows agree."""
    print(title)
    for name, places in COLUMNS.items():
        def equal(a, b, i, places=places):
            return all(a[i][p] == b[i][p] for p in places)
        chosen = [i for i in range(len(ours)) if reference is None or equal(theirs, reference, i)]
        decided = sum((ours[i][places[0]] == "kept") == (theirs[i][places[0]] == "kept") for i in chosen)
        same = sum(equal(ours, theirs, i) for i in chosen)
        kept = sum(theirs[i][places[0]] == "kept" for i in chosen)
        print(f"  {name:18} decision {share(decided, len(chosen))}, with reason and text {share(same, len(chosen))}; {kept} kept")
        for i in [i for i in chosen if not equal(ours, theirs, i)][:10]:
            print("    document", i, "strata", *ours[i], "datatrove", *theirs[i])


def filters(build, texts):
    theirs, ours = {}, {}
    for words in ("spacy", "whitespace"):
        start = time.process_time()
        theirs[words] = datatrove_decisions(texts, words)
        seconds = time.process_time() - start
        megabytes = sum(len(text.encode()) for text in texts) / 1e6
        print(f"datatrove, {words}: {megabytes:.1f} MB in {seconds:.0f} s on one core", flush=True)
        ours[words] = our_decisions(build, texts, words)
    compare('words = "spacy"', ours["spacy"], theirs["spacy"])
    compare('words = "whitespace", datatrove with str.split', ours["whitespace"], theirs["whitespace"])
    compare('words = "whitespace", datatrove as it is, where both ways of splitting decide the same', ours["whitespace"],
            theirs["spacy"], theirs["whitespace"])


def with_copies(texts, seed=3):
    """The texts, then a copy of each text of at least 100 words, in which random words are replaced; the more, the less
    similar."""
    draw = random.Random(seed)
    copies, originals = [], []
    for number, text in enumerate(texts):
        words = text.split(" ")
        if len(words) < 100 or len(words) > 5000:
            continue
        rate = draw.choice((0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.16, 0.2))
        changed = max(1, round(rate * len(words)))
        for place in draw.sample(range(len(words)), changed):
            words[place] = "changed%d" % draw.randrange(1 << 30)
        copies.append(" ".join(words))
        originals.append(number)
    return copies, originals


def our_clusters(build, texts, folder, words):
    """For each document the one that represents its cluster and is kept."""
    path = folder / "texts.jsonl"
    write_jsonl(path, texts)
    subprocess.run([build / "bin/strata", "data", "dedup", path, "--stage", "minhash", "-o", folder / "ours", "--set",
                    f'stage.0.words="{words}"'], check=True, capture_output=True)
    root = list(range(len(texts)))
    for part in sorted((folder / "ours/audit").iterdir()):
        for line in part.read_text().splitlines():
            record = json.loads(line)
            if "duplicate_of" in record:
                root[int(record["id"])] = int(record["duplicate_of"])
    return root


def datatrove_clusters(texts, folder):
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    logger.remove()
    config = MinhashConfig(n_grams=WORDS, num_buckets=BUCKETS, hashes_per_bucket=ROWS)
    sigs, dups, removed = (str(folder / name) for name in ("sigs", "dups", "removed"))
    signer = MinhashDedupSignature(sigs, config)
    signer.run([Document(text=text, id=str(i)) for i, text in enumerate(texts)], 0)
    for bucket in range(BUCKETS):
        MinhashDedupBuckets(sigs, dups, config=config).run(None, bucket, BUCKETS)
    MinhashDedupCluster(dups, removed, config, save_cluster_id=True).run()
    cluster = [-1 - i for i in range(len(texts))]
    data = (folder / "removed/000000.clusters").read_bytes()
    for document, number in struct.iter_unpack("<II", data):
        cluster[document] = number
    return cluster, signer


def groups(labels):
    """Clusters of more than one document, as sets."""
    found = {}
    for document, label in enumerate(labels):
        found.setdefault(label, []).append(document)
    return {tuple(documents) for documents in found.values() if len(documents) > 1}


def minhash(build, texts):
    copies, originals = with_copies(texts)
    everything = texts + copies
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        ours = our_clusters(build, everything, folder, "spacy")
        theirs, signer = datatrove_clusters(everything, folder)
    mine, other = groups(ours), groups(theirs)
    print(f"minhash: {len(texts)} documents and {len(copies)} changed copies")
    print(f"  clusters: strata {len(mine)}, datatrove {len(other)}, the same {share(len(mine & other), len(mine | other))}; "
          f"removed: strata {sum(len(g) - 1 for g in mine)}, datatrove {sum(len(g) - 1 for g in other)}")

    # Only each copy and its original, so that no third document joins their cluster.
    cut = {}
    sets = [None if not len(s) else set(s.ravel().tolist()) for s in map(signer.get_shingles, everything)]
    bins = [(0.0, 0.3), (0.3, 0.5), (0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01)]
    for number, original in enumerate(originals):
        a, b = sets[original], sets[len(texts) + number]
        if a and b:
            cut[number] = len(a & b) / len(a | b)
    found = found_alone(build, texts, copies, originals, cut)
    print("  pairs of a copy and its original:")
    for low, high in bins:
        chosen = [number for number, s in cut.items() if low <= s < high]
        if not chosen:
            continue
        curve = [1 - (1 - cut[n] ** ROWS) ** BUCKETS for n in chosen]
        spread = math.sqrt(sum(p * (1 - p) for p in curve))
        print(f"  Jaccard {low:.1f} to {min(high, 1):.1f}: found {share(sum(n in found for n in chosen), len(chosen))}, the curve "
              f"predicts {sum(curve):.1f} +- {spread:.1f} ({100 * sum(curve) / len(chosen):.2f} %)")


def found_alone(build, texts, copies, originals, cut):
    """The copies that end in one cluster with their original, without other similar documents: the words of each pair get a
    unique suffix, which preserves the Jaccard similarity within the pair."""
    def marked(text, number):
        ending = "q" + "".join("abcdefghij"[int(digit)] for digit in str(number)) + "q"  # digits would become 0
        return " ".join(word + ending for word in text.split())

    from datatrove.utils.text import simplify_text, TextNormConfig
    from datatrove.utils.word_tokenizers import load_word_tokenizer
    tokenizer = load_word_tokenizer("en")

    def words(text):
        return " ".join(tokenizer.word_tokenize(simplify_text(text, TextNormConfig())))

    numbers = sorted(cut)
    pairs = [marked(words(texts[originals[n]]), n) for n in numbers] + [marked(words(copies[n]), n) for n in numbers]
    with tempfile.TemporaryDirectory() as folder:
        root = our_clusters(build, pairs, pathlib.Path(folder), "whitespace")
    return {n for i, n in enumerate(numbers) if root[i] == root[len(numbers) + i]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--part", choices=["filters", "minhash"])
    options = parser.parse_args()
    texts = sample(options.files, options.documents)
    if options.part != "minhash":
        filters(options.build, texts)
    if options.part != "filters":
        minhash(options.build, texts)


if __name__ == "__main__":
    main()

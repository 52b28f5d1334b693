#!/usr/bin/env python3
"""Writes tests/data/dedup/minhash.json: signatures and clusters of datatrove's MinHash on a small corpus.

    python tools/golden/make_minhash.py tests/data/dedup/minhash.json        # datatrove, spacy, xxhash
"""
import json
import random
import struct
import sys
import tempfile
from pathlib import Path

import datatrove.utils.hashes.xxhash as datatrove_xxhash
import xxhash
from datatrove.data import Document
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.utils.hashing import HashConfig

# xxhash 4 accepts only bytes, but datatrove 0.10 passes str; xxhash 3 encoded them like this.
datatrove_xxhash.xxhash64 = lambda data: xxhash.xxh64_intdigest(data.encode() if isinstance(data, str) else data)
datatrove_xxhash.xxhash32 = lambda data: xxhash.xxh32_intdigest(data.encode() if isinstance(data, str) else data)

rng = random.Random(11)
VOCABULARY = ["The", "of", "and", "to", "in", "is", "don't", "it's", "3.14", "1,000", "café", "naïve", "Straße", "İstanbul", "ΟΔΟΣ", "日本語", "well-known", "e.g.", "U.S.", "(see",
              "below)", "\"quoted\"", "http://example.com/a?b=c", "a@b.org", "x\u0301y", "\u0301", "—", "…", "100%", "$5"] + ["w%d" % i if i % 7 == 0 else "".join(rng.choice("abcdefghij") for _ in range(rng.randint(2, 8))) for i in range(600)]


def text(words):
    return "".join(word + rng.choice([" ", " ", " ", " ", ", ", ".\n", "  "]) for word in words).strip()


TEXTS = []
for family in range(20):
    base = [rng.choice(VOCABULARY) for _ in range(rng.randint(15, 70))]
    TEXTS.append(text(base))
    for copy in range(rng.randint(0, 4)):
        changed = list(base)
        for _ in range(rng.randint(0, 5)):
            changed[rng.randrange(len(changed))] = rng.choice(VOCABULARY)
        TEXTS.append(text(changed))
TEXTS += ["", "too few words", "now there are just five", "Now there are JUST five!"]
rng.shuffle(TEXTS)
PARTS = [len(TEXTS) // 3, len(TEXTS) - len(TEXTS) // 3]


def run(hash_fc, precision, seed):
    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8, seed=seed, hash_config=HashConfig(hash_fc=hash_fc, precision=precision))
    with tempfile.TemporaryDirectory() as folder:
        signer = MinhashDedupSignature(folder + "/sigs", config)
        at = 0
        for rank, size in enumerate(PARTS):
            signer.run([Document(text=t, id=str(i)) for i, t in enumerate(TEXTS[at:at + size])], rank)
            at += size
        for bucket in range(14):
            MinhashDedupBuckets(folder + "/sigs", folder + "/dups", config=config).run(None, bucket, 14)
        MinhashDedupCluster(folder + "/dups", folder + "/removed", config, save_cluster_id=True).run()
        clusters = [-1] * len(TEXTS)
        removed = 0
        at = 0
        for rank, size in enumerate(PARTS):
            path = Path(folder, "removed", f"{rank:06d}.clusters")
            pairs = struct.iter_unpack("<2I", path.read_bytes()) if path.exists() else []
            for document, cluster in pairs:
                clusters[at + document] = cluster
            path = Path(folder, "removed", f"{rank:06d}.remove")
            removed += len(path.read_bytes()) // 4 if path.exists() else 0
            at += size
    sums = []
    for t in TEXTS:
        shingles = signer.get_shingles(t)
        signature = signer.get_signature(shingles) if shingles.size else []
        # A sum that depends on the order of its terms.
        total = 0
        for i, value in enumerate(v for bucket in signature for v in bucket):
            total = (total + (2 * i + 1) * int(value)) % 2**64
        sums.append(str(total))
    return {"hash": hash_fc, "precision": precision, "seed": seed, "signature_sums": sums, "clusters": clusters, "removed": removed}


json.dump({"texts": TEXTS, "parts": PARTS, "runs": [run("xxhash", 64, 1), run("sha1", 64, 1), run("xxhash", 32, 7), run("sha1", 32, 1)]}, open(sys.argv[1], "w"), indent=0)

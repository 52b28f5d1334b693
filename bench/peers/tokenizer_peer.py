#!/usr/bin/env python3
"""Times Hugging Face tokenizers and Strata on the same text in one run, and prints the ratios.

    python bench/peers/tokenizer_peer.py build/bench/tokenizer_bench TEXT_FILE [--vocabulary 12000] [--rounds 3]

Needs `pip install tokenizers`. Both train a GPT-2 style byte-level BPE (min_frequency 2, full alphabet), which must be
the same, and encode the text in documents of about 4 kB. Rounds are interleaved; the best of each counts.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time


def peer(kind, path, vocabulary, tokenizer_path):
    """Runs in a process of its own, as the thread count is read once."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    if kind == "train":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        start = time.perf_counter()
        tokenizer.train([path], trainers.BpeTrainer(
            vocab_size=vocabulary, min_frequency=2, show_progress=False, special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        print(time.perf_counter() - start)
        tokenizer.save(tokenizer_path)
        return
    tokenizer = Tokenizer.from_file(tokenizer_path)
    text = open(path, "rb").read()
    documents, at = [], 0
    while at < len(text):
        end = text.find(b"\n", min(len(text) - 1, at + 4096)) + 1 or len(text)
        documents.append(text[at:end].decode("utf-8", "replace"))
        at = end
    start = time.perf_counter()
    if os.environ["RAYON_NUM_THREADS"] == "1":
        count = sum(len(tokenizer.encode(d, add_special_tokens=False).ids) for d in documents)
        seconds = time.perf_counter() - start
    else:
        encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        seconds = time.perf_counter() - start
        count = sum(len(e.ids) for e in encoded)
    print(seconds, count)


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--peer":
        return peer(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("text")
    parser.add_argument("--vocabulary", type=int, default=12000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    megabytes = os.path.getsize(options.text) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = os.path.join(folder, "ours.json"), os.path.join(folder, "theirs.json")
        best = {}

        def keep(key, seconds):
            best[key] = min(best.get(key, seconds), seconds)

        def run_peer(kind, threads):
            environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM=str(threads > 1).lower())
            command = [sys.executable, __file__, "--peer", kind, options.text, str(options.vocabulary), theirs]
            return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()

        def run_ours(*arguments):
            out = subprocess.run([options.bench, *arguments], check=True, capture_output=True, text=True).stdout
            return [json.loads(line) for line in out.splitlines()]

        for _ in range(options.rounds):
            for threads in (1, 2):
                keep(("peer train", threads), float(run_peer("train", threads)[0]))
                keep(("train", threads), run_ours("train", options.text, str(options.vocabulary), ours, str(threads))[0]["seconds"])
                a, b = json.load(open(ours))["model"], json.load(open(theirs))["model"]
                assert a["merges"] == b["merges"] and a["vocab"] == b["vocab"], "the two trainers disagree"
                seconds, count = run_peer("encode", threads)
                keep(("peer encode", threads), float(seconds))
                cold, warm = run_ours("encode", options.text, ours, str(threads))
                assert cold["tokens"] == int(count), "the two encoders disagree"
                keep(("encode", threads), cold["seconds"])
                keep(("encode warm", threads), warm["seconds"])
    print(f"{megabytes:.1f} MB, vocabulary {options.vocabulary}, best of {options.rounds}; MB/s")
    for what, reference in (("train", "peer train"), ("encode", "peer encode"), ("encode warm", "peer encode")):
        for threads in (1, 2):
            mine, other = best[what, threads], best[reference, threads]
            print(f"{what:12} {threads} thread(s): strata {megabytes / mine:7.1f}  tokenizers {megabytes / other:7.1f}"
                  f"  ratio {other / mine:5.1f}")


if __name__ == "__main__":
    main()

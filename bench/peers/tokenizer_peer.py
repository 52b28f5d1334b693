#!/usr/bin/env python3
"""Times Hugging Face tokenizers, tiktoken and Strata on the same text in one run, and prints the ratios.

    python bench/peers/tokenizer_peer.py build/bench/tokenizer_bench TRAIN_TEXT [--fresh TEXT] [--vocabulary 32000 128000]
        [--rounds 3] [--threads 1 2]

Needs `pip install tokenizers tiktoken`. Hugging Face and Strata train a GPT-2 style byte-level BPE (min_frequency 2, full
alphabet), which must be equal, and all three use it to encode the fresh text (without --fresh: the training text) in
documents of about 4 kB, each in a separate process with empty caches. Token counts must agree. Rounds are interleaved; the
best of each is used.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time


def documents(path):
    text = open(path, "rb").read()
    out, at = [], 0
    while at < len(text):
        end = text.find(b"\n", min(len(text) - 1, at + 4096)) + 1 or len(text)
        out.append(text[at:end].decode("utf-8", "replace"))
        at = end
    return out


def tiktoken_of(path):
    """The same vocabulary for tiktoken: ids without the special token."""
    import tiktoken
    vocabulary = json.load(open(path))["model"]["vocab"]
    kept = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    byte_of = {chr(b): b for b in kept}
    byte_of.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in set(kept))})
    ranks = {bytes(byte_of[c] for c in token): i - 1 for token, i in vocabulary.items() if token != "<|endoftext|>"}
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    return tiktoken.Encoding("peer", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def peer(kind, path, vocabulary, tokenizer_path):
    """Runs in a separate process, because the number of threads is read only once."""
    if kind == "tiktoken":
        encoding, texts = tiktoken_of(tokenizer_path), documents(path)
        start = time.perf_counter()
        count = sum(len(encoding.encode_ordinary(text)) for text in texts)
        print(time.perf_counter() - start, count)
        return
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
    texts = documents(path)
    start = time.perf_counter()
    if os.environ["RAYON_NUM_THREADS"] == "1":
        count = sum(len(tokenizer.encode(d, add_special_tokens=False).ids) for d in texts)
        seconds = time.perf_counter() - start
    else:
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        seconds = time.perf_counter() - start
        count = sum(len(e.ids) for e in encoded)
    print(seconds, count)


def measure(options, vocabulary, folder):
    ours, theirs = os.path.join(folder, "ours.json"), os.path.join(folder, "theirs.json")
    fresh = options.fresh or options.text
    best = {}

    def keep(key, seconds):
        best[key] = min(best.get(key, seconds), seconds)

    def run_peer(kind, threads, path, tokenizer):
        environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM=str(threads > 1).lower())
        command = [sys.executable, __file__, "--peer", kind, path, str(vocabulary), tokenizer]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()

    def run_ours(*arguments):
        out = subprocess.run([options.bench, *arguments], check=True, capture_output=True, text=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    for _ in range(options.rounds):
        for threads in options.threads:
            keep(("peer train", threads), float(run_peer("train", threads, options.text, theirs)[0]))
            keep(("train", threads), run_ours("train", options.text, str(vocabulary), ours, str(threads))[0]["seconds"])
            a, b = json.load(open(ours))["model"], json.load(open(theirs))["model"]
            assert a["merges"] == b["merges"] and a["vocab"] == b["vocab"], "the two trainers disagree"
            seconds, count = run_peer("encode", threads, fresh, ours)
            keep(("peer encode", threads), float(seconds))
            cold, warm = run_ours("encode", fresh, ours, str(threads))
            assert cold["tokens"] == int(count), "the two encoders disagree"
            keep(("encode cold", threads), cold["seconds"])
            keep(("encode warm", threads), warm["seconds"])
            if threads == 1:
                seconds, count = run_peer("tiktoken", threads, fresh, ours)
                assert cold["tokens"] == int(count), "tiktoken disagrees"
                keep(("tiktoken", threads), float(seconds))
    return best


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--peer":
        return peer(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("text")
    parser.add_argument("--fresh")
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[32000, 128000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    megabytes = {"train": os.path.getsize(options.text) / 1e6, "encode": os.path.getsize(options.fresh or options.text) / 1e6}
    for vocabulary in options.vocabulary:
        with tempfile.TemporaryDirectory() as folder:
            best = measure(options, vocabulary, folder)
        print(f"vocabulary {vocabulary}: train on {megabytes['train']:.1f} MB, encode {megabytes['encode']:.1f} MB, best of "
              f"{options.rounds}")
        for what, reference in (("train", "peer train"), ("encode cold", "peer encode"), ("encode warm", "peer encode"),
                                ("encode cold", "tiktoken")):
            for threads in options.threads:
                if (reference, threads) not in best:
                    continue
                mine, other, size = best[what, threads], best[reference, threads], megabytes[what.split()[0]]
                name = "tiktoken" if reference == "tiktoken" else "tokenizers"
                print(f"  {what:12} {threads} thread(s): strata {size / mine:7.1f} MB/s ({mine:.2f} s)  {name} "
                      f"{size / other:6.1f} MB/s  ratio {other / mine:5.1f}")


if __name__ == "__main__":
    main()
